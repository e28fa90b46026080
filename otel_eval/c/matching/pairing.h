/* Which calls are paired: what explains a weight.
 *
 * Knows pairs, what each weighs, and which calls agree with an expected one but for their place. Answers exactly what
 * `align` in Python does, or None where Python has to: calls that are not plain, side by side, too many.
 */

static void pair_in_order_of_rows(const Kinds *kinds, const int *made, Py_ssize_t count, int *column_of, int *waiting, int *next)
{
    for (Py_ssize_t kind = 0; kind < kinds->made; kind++)
        waiting[kind] = -1;
    for (Py_ssize_t column = count - 1; column >= 0; column--)
        if (made[column] >= 0) {
            next[column] = waiting[made[column]];
            waiting[made[column]] = (int)column;
        }
    for (Py_ssize_t row = 0; row < kinds->count; row++)
        if ((column_of[row] = waiting[kinds->kind[row]]) >= 0)
            waiting[kinds->kind[row]] = next[column_of[row]];
}

static int pair_common(const Kinds *kinds, const int *made, Py_ssize_t count, int *column_of)
{
    int paired;
    if (kinds->words * count < LARGE)
        return common_pairs(kinds, kinds->masks, made, count, column_of);
    Py_BEGIN_ALLOW_THREADS;
    paired = common_pairs(kinds, kinds->masks, made, count, column_of);
    Py_END_ALLOW_THREADS;
    return paired;
}

/* 1 if they are paired, 0 if that is left to Python; `room` is for twice the visits and for each kind. */
static int pair_names(const Names *self, PyObject *visits, int anyhow, int nested, int concurrency, int *column_of, int *room)
{
    Py_ssize_t count = PyTuple_GET_SIZE(visits);
    Layout layout = layout_of_visits(visits);
    if (layout.at[NAME] < 0 || layout.at[START] < 0 || layout.at[END] < 0)
        return 0;
    int equal = read_names(self, visits, &layout, 0, room);
    for (Py_ssize_t place = 0; equal > 0 && place < count; place++)
        column_of[place] = (int)place;
    if (equal)
        return equal > 0;
    if (anyhow) {
        pair_in_order_of_rows(&self->kinds, room, count, column_of, room + 2 * count, room + count);
        return 1;
    }
    if (nested || (concurrency && follow_one_another(visits, &layout) != 1))
        return 0;
    return pair_common(&self->kinds, room, count, column_of) == 0;
}

/* [(row, column), ...], in order of rows. */
static PyObject *list_of_pairs(const int *column_of, Py_ssize_t rows)
{
    PyObject *pairs = PyList_New(0);
    for (Py_ssize_t row = 0; pairs != NULL && row < rows; row++) {
        if (column_of[row] < 0)
            continue;
        PyObject *pair = Py_BuildValue("(ni)", row, column_of[row]);
        if (pair == NULL || PyList_Append(pairs, pair) < 0)
            Py_CLEAR(pairs);
        Py_XDECREF(pair);
    }
    return pairs;
}

static PyObject *list_of_shares(const Weighing *weighing, Py_ssize_t rows)
{
    PyObject *shares = PyList_New(0);
    for (Py_ssize_t row = 0; shares != NULL && row < rows; row++) {
        if (weighing->column_of[row] < 0)
            continue;
        PyObject *share = PyFloat_FromDouble(weighing->share[row]);
        if (share == NULL || PyList_Append(shares, share) < 0)
            Py_CLEAR(shares);
        Py_XDECREF(share);
    }
    return shares;
}

static PyObject *names_pairs(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    const Names *self = (Names *)object;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "pairs(visits, in any order, nested, concurrency)");
        return NULL;
    }
    PyObject *visits = visits_of(given[0]);
    if (visits == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    Py_ssize_t rows = self->kinds.count;
    int *room = PyMem_Malloc((size_t)(rows + self->kinds.made + 2 * PyTuple_GET_SIZE(visits) + 1) * sizeof(int));
    PyObject *pairs = room == NULL ? PyErr_NoMemory() : NULL;
    if (room != NULL)
        pairs = pair_names(self, visits, given[1] == Py_True, given[2] == Py_True, given[3] == Py_True, room, room + rows)
                    ? list_of_pairs(room, rows)
                    : Py_NewRef(Py_None);
    PyMem_Free(room);
    Py_DECREF(visits);
    return pairs;
}

static PyObject *pairs_of(const Calls *calls, PyObject *visits, int anyhow, int concurrency, int shortcut, int *room, double *shares)
{
    Py_ssize_t rows = calls->kinds.count;
    Weighing weighing = {.calls = calls, .match = anyhow ? 'a' : 'i', .shortcut = shortcut};
    weighing.column_of = room, weighing.misplaced = room + rows, weighing.share = shares;
    memset(room, 0xFF, (size_t)(2 * rows) * sizeof(int));
    int answer = answer_of(&weighing, visits, concurrency);
    free(weighing.rest);
    if (answer != TOLD)
        Py_RETURN_NONE;
    return Py_BuildValue("(NNN)", list_of_pairs(room, rows), list_of_shares(&weighing, rows), list_of_pairs(room + rows, rows));
}

static PyObject *calls_pairs(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    const Calls *self = (Calls *)object;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "pairs(visits, in any order, concurrency, shortcut)");
        return NULL;
    }
    PyObject *visits = visits_of(given[0]), *pairs = NULL;
    if (visits == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    int *room = PyMem_Malloc((size_t)(2 * self->kinds.count + 1) * sizeof(int));
    double *shares = PyMem_Calloc((size_t)(self->kinds.count + 1), sizeof(double));
    if (room == NULL || shares == NULL)
        PyErr_NoMemory();
    else
        pairs = pairs_of(self, visits, given[1] == Py_True, given[2] == Py_True, given[3] == Py_True, room, shares);
    PyMem_Free(room);
    PyMem_Free(shares);
    Py_DECREF(visits);
    return pairs;
}
