/* Calls and spans, read from their slots.
 *
 * Knows where slots lie and what is plain: all of one class whose fields are slots, names that are strings, times that
 * are whole numbers or None. Nothing here runs anybody's Python code, so nothing can change meanwhile; whatever is not
 * plain is left to Python.
 */

enum { NAME, START, END, ARGUMENTS, SLOTS };

typedef struct {
    PyTypeObject *type;
    unsigned int version; /* of the type: another one once anybody changed it, and never again the same */
    Py_ssize_t at[SLOTS]; /* -1: it has no such slot */
} Layout;

static Layout known; /* the class that was met last */

static Py_ssize_t slot_at(PyTypeObject *type, PyObject *name)
{
    PyObject *member = PyObject_GetAttr((PyObject *)type, name);
    Py_ssize_t offset = -1;
    if (member != NULL && Py_IS_TYPE(member, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(member)) &&
        ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)member)->d_member->offset;
    PyErr_Clear(); /* Python says what is wrong with a class without names */
    Py_XDECREF(member);
    return offset;
}

static Layout layout_of(PyTypeObject *type)
{
    if (known.type == type && known.version != 0 && known.version == type->tp_version_tag)
        return known;
    Layout found = {.type = type};
    for (int slot = 0; slot < SLOTS; slot++)
        found.at[slot] = slot_at(type, slot_names[slot]);
    found.version = type->tp_version_tag;
    known = found;
    return found;
}

/* Of the class of the first of them; of none at all, one that is never used. */
static Layout layout_of_visits(PyObject *visits)
{
    return PyTuple_GET_SIZE(visits) > 0 ? layout_of(Py_TYPE(PyTuple_GET_ITEM(visits, 0))) : (Layout){.at = {0}};
}

/* The visits in a tuple, of a list what is in it now; NULL without an exception where they are neither. */
static PyObject *visits_of(PyObject *given)
{
    return PyTuple_CheckExact(given) || PyList_CheckExact(given) ? PySequence_Tuple(given) : NULL;
}

/* Borrowed; NULL where it was never set. */
static PyObject *slot_of(PyObject *visit, Py_ssize_t offset)
{
    return *(PyObject **)((char *)visit + offset);
}

/* Nanoseconds: 1 if it is a number that fits, 0 if it is None, -1 if it is anything else. */
static int read_time(PyObject *value, long long *time)
{
    int overflow;
    if (value == Py_None)
        return 0;
    if (value == NULL || !PyLong_CheckExact(value))
        return -1;
    *time = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow || *time == LLONG_MAX ? -1 : 1;
}

/* Whether each visit certainly starts once the one before has ended; -1 if the times are not plain. */
static int follow_one_another(PyObject *visits, const Layout *layout)
{
    long long free = 1, start = 0, end = 0;
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(visits); place++) {
        PyObject *visit = PyTuple_GET_ITEM(visits, place);
        int started = read_time(slot_of(visit, layout->at[START]), &start);
        int ended = read_time(slot_of(visit, layout->at[END]), &end);
        if (started < 0 || ended < 0)
            return -1;
        if (!started || !ended)
            continue;
        if (start < free)
            return 0;
        free = end > start ? end : start + 1;
    }
    return 1;
}
