/* What calls weigh against expected names.
 *
 * Knows the three ways to match; answers exactly what `weight_of_names` in Python does, or NotImplemented where the calls
 * are not plain.
 */

#define LARGE 200000 /* words: from here on other threads may run meanwhile */

/* The numbers of the visits' names; whether all are expected, place by place. -1 if one is not plain. After a difference
 * that settles it, `all_or_nothing`, names are only looked at for that. */
static int read_names(const Names *self, PyObject *visits, const Layout *layout, int all_or_nothing, int *made)
{
    const Kinds *kinds = &self->kinds;
    Py_ssize_t next = 0; /* runs mostly keep to the order that is expected, and share its strings */
    int equal = PyTuple_GET_SIZE(visits) == kinds->count;
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(visits); place++) {
        PyObject *visit = PyTuple_GET_ITEM(visits, place);
        PyObject *name = Py_IS_TYPE(visit, layout->type) ? slot_of(visit, layout->at[NAME]) : NULL;
        if (name == NULL || !PyUnicode_CheckExact(name))
            return -1;
        if (all_or_nothing && !equal)
            continue;
        if (next < kinds->count && name == PyTuple_GET_ITEM(self->names, next))
            made[place] = kinds->kind[next++];
        else if ((made[place] = number_of(self->codes, name)) >= 0 && next < kinds->count)
            next += made[place] == kinds->kind[next];
        equal = equal && made[place] == kinds->kind[place];
    }
    return equal;
}

static Py_ssize_t length_of(const Kinds *kinds, const int *made, Py_ssize_t count, uint64_t *row)
{
    Py_ssize_t length;
    if (kinds->words * count < LARGE)
        return common_length(kinds, kinds->masks, made, count, row);
    Py_BEGIN_ALLOW_THREADS;
    length = common_length(kinds, kinds->masks, made, count, row);
    Py_END_ALLOW_THREADS;
    return length;
}

/* A weight; or one of these. */
enum { UNTOLD = -1, UNUSUAL = -2, NO_MEMORY = -3 };

static Py_ssize_t weigh(const Names *self, PyObject *visits, const Layout *layout, Py_UCS4 match, int nested, int concurrency,
                        int *made, uint64_t *row)
{
    Py_ssize_t count = PyTuple_GET_SIZE(visits), weight = 0;
    int equal = read_names(self, visits, layout, match == 'e' && !nested, made), certain;
    if (equal)
        return equal < 0 ? UNUSUAL : count;
    if (match == 'a')
        return in_common(&self->kinds, made, count, (int *)row);
    if (nested)
        return UNTOLD;
    if (match == 'e')
        certain = self->kinds.count != count;
    else {
        weight = length_of(&self->kinds, made, count, row);
        certain = weight == (count < self->kinds.count ? count : self->kinds.count); /* concurrency could only add to it */
    }
    if (certain || !concurrency)
        return weight;
    int follow = follow_one_another(visits, layout);
    return follow < 0 ? UNUSUAL : follow ? weight : UNTOLD;
}

/* With room for the numbers of the visits, and for a row or a count of each number. */
static Py_ssize_t weigh_visits(const Names *self, PyObject *visits, Py_UCS4 match, int nested, int concurrency)
{
    uint64_t few[64];
    const Kinds *kinds = &self->kinds;
    Py_ssize_t count = PyTuple_GET_SIZE(visits);
    Py_ssize_t rows = kinds->made > kinds->words ? kinds->made : kinds->words, room = rows + count / 2 + 1;
    Layout layout = layout_of_visits(visits);
    if (layout.at[NAME] < 0 || layout.at[START] < 0 || layout.at[END] < 0)
        return UNUSUAL;
    uint64_t *row = room <= 64 ? few : PyMem_Malloc((size_t)room * sizeof *row);
    if (row == NULL)
        return NO_MEMORY;
    Py_ssize_t weight = weigh(self, visits, &layout, match, nested, concurrency, (int *)(row + rows), row);
    if (row != few)
        PyMem_Free(row);
    return weight;
}

static PyObject *said(Py_ssize_t weight)
{
    if (weight == UNTOLD)
        Py_RETURN_NONE;
    if (weight == UNUSUAL)
        return Py_NewRef(Py_NotImplemented);
    if (weight == NO_MEMORY)
        return PyErr_NoMemory();
    return PyLong_FromSsize_t(weight);
}

static PyObject *names_weight(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !PyUnicode_Check(given[1]) || PyUnicode_GetLength(given[1]) < 1) {
        PyErr_SetString(PyExc_TypeError, "weight(visits, match, nested, concurrency)");
        return NULL;
    }
    PyObject *visits = visits_of(given[0]);
    if (visits == NULL)
        return PyErr_Occurred() ? NULL : said(UNUSUAL);
    Py_ssize_t weight = weigh_visits((Names *)object, visits, PyUnicode_READ_CHAR(given[1], 0), given[2] == Py_True, given[3] == Py_True);
    Py_DECREF(visits);
    return said(weight);
}
