/* Expected names, prepared once.
 *
 * Knows strings and the numbers that stand for them; knows no calls.
 */

typedef struct {
    PyObject_HEAD
    PyObject *names; /* a tuple of strings */
    PyObject *codes; /* name: the number that stands for it */
    Kinds kinds;     /* by those numbers */
} Names;

static PyTypeObject *names_type;

static void names_dealloc(PyObject *object)
{
    Names *self = (Names *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->names);
    Py_XDECREF(self->codes);
    free_kinds(&self->kinds);
    PyObject_Free(object);
    Py_DECREF(type);
}

static int number_names(Names *self)
{
    if ((self->codes = PyDict_New()) == NULL || allot_kinds(&self->kinds, PyTuple_GET_SIZE(self->names)) < 0)
        return -1;
    for (Py_ssize_t place = 0; place < self->kinds.count; place++)
        if ((self->kinds.kind[place] = new_number(self->codes, PyTuple_GET_ITEM(self->names, place))) < 0)
            return -1;
    return lay_out(&self->kinds, PyDict_GET_SIZE(self->codes));
}

static PyObject *prepare_names(PyObject *Py_UNUSED(module), PyObject *names)
{
    if (!PyTuple_CheckExact(names) || PyTuple_GET_SIZE(names) > INT_MAX / 2)
        Py_RETURN_NONE;
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(names); place++)
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, place)))
            Py_RETURN_NONE;
    Names *self = PyObject_New(Names, names_type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->names = Py_NewRef(names);
    if (number_names(self) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
