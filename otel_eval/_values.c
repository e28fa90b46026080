/* Whether values are such as an expression takes them.
 *
 * Knows: plain texts, numbers of 64 bits, dicts and lists, and how many there may be. Refuses to know: what to do about any
 * others, and which limit they are beyond: then Python is asked instead, whose answer counts. So both ways give equal
 * results, and this is only a shortcut.
 *
 * Recursion has a limit, and no Python runs while something is walked.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* How much there may still be. */
typedef struct {
    Py_ssize_t values, characters, longest;
    PyObject *unrecorded;
} Room;

static bool holds_text(Room *room, PyObject *text)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    room->characters -= length;
    if (room->characters < 0)
        return false;
    if (PyUnicode_KIND(text) == PyUnicode_1BYTE_KIND)
        return true;
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    for (Py_ssize_t at = 0; at < length; at++)
        if (Py_UNICODE_IS_SURROGATE(PyUnicode_READ(kind, data, at)))
            return false;
    return true;
}

static bool holds_number(PyObject *number)
{
    int beyond;
    (void)PyLong_AsLongLongAndOverflow(number, &beyond);
    return !beyond;
}

static bool holds(Room *room, PyObject *value, int levels);

static bool holds_dict(Room *room, PyObject *dict, int levels)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value))
        if (!PyUnicode_CheckExact(key) || !holds_text(room, key) || !holds(room, value, levels))
            return false;
    return true;
}

static bool holds_list(Room *room, PyObject *list, int levels)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); at++)
        if (!holds(room, PyList_GET_ITEM(list, at), levels))
            return false;
    return true;
}

/* `levels`: how many there may be, with this one. */
static bool holds(Room *room, PyObject *value, int levels)
{
    if (--room->values < 0 || levels == 0)
        return false;
    if (PyUnicode_CheckExact(value))
        return holds_text(room, value);
    if (PyLong_CheckExact(value))
        return holds_number(value);
    if (PyDict_CheckExact(value))
        return holds_dict(room, value, levels - 1);
    if (PyList_CheckExact(value))
        return PyList_GET_SIZE(value) <= room->longest && holds_list(room, value, levels - 1);
    return value == Py_None || PyFloat_CheckExact(value) || PyBool_Check(value) || value == room->unrecorded;
}

static PyObject *fit(PyObject *Py_UNUSED(module), PyObject *args)
{
    Room room;
    PyObject *values;
    int levels;
    if (!PyArg_ParseTuple(args, "O!nninO:fit", &PyList_Type, &values, &room.values, &room.characters, &levels, &room.longest,
                          &room.unrecorded))
        return NULL;
    return PyBool_FromLong(holds_list(&room, values, levels));
}

static PyMethodDef functions[] = {
    {"fit", fit, METH_VARARGS,
     "fit(contents, values, characters, levels, longest, unrecorded): whether these are plain, or unrecorded, and no more, no\n"
     "deeper and no longer lists than that. False if it cannot tell."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._values",
    .m_doc = "A shortcut for looking through the values that expressions are given.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__values(void)
{
    return PyModule_Create(&definition);
}
