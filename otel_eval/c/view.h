/* A span, readable field by field.
 *
 * The Python reader is used where a field is unusual.
 */

typedef struct {
    PyObject_HEAD
    PyObject *payload; /* bytes, into which the head's ranges point */
    PyObject *pure;    /* the Python view of the same span, once it was needed */
    Head head;
} View;

static PyTypeObject *view_type;

static void view_dealloc(PyObject *object)
{
    View *self = (View *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->payload);
    Py_XDECREF(self->pure);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *pure_of(View *self)
{
    if (self->pure == NULL) {
        PyObject *pure = PyObject_CallOneArg(pure_view, self->payload);
        Py_XSETREF(self->pure, pure); /* another thread may have been faster */
    }
    return self->pure;
}

static PyObject *attribute_of_pure(View *self, PyObject *name)
{
    PyObject *pure = pure_of(self);
    return pure == NULL ? NULL : PyObject_GetAttr(pure, name);
}

static PyObject *view_name(PyObject *self, void *Py_UNUSED(unused))
{
    return text_of(((View *)self)->head.name);
}

static PyObject *view_kind(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromLong(((View *)self)->head.kind);
}

static PyObject *view_remote(PyObject *self, void *Py_UNUSED(unused))
{
    unsigned flags = ((View *)self)->head.flags;
    return Py_NewRef(!(flags & 0x100) ? Py_None : flags & 0x200 ? Py_True : Py_False);
}

static PyObject *view_dropped(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((View *)self)->head.dropped);
}

static PyObject *view_start(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((View *)self)->head.start);
}

static PyObject *view_end(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((View *)self)->head.end);
}

static int read_status(Range in, int *code, Range *message)
{
    *code = 0;
    *message = (Range){NULL, NULL};
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if (tag == 0x12 ? !take(&in, message) : tag != 0x18 || !take_small(&in, code))
            return 0;
    }
    return 1;
}

static PyObject *view_status_code(PyObject *object, void *Py_UNUSED(unused))
{
    View *self = (View *)object;
    int code;
    Range message;
    if (!read_status(self->head.status, &code, &message))
        return attribute_of_pure(self, str_status_code);
    return PyLong_FromLong(code);
}

static PyObject *view_status_message(PyObject *object, void *Py_UNUSED(unused))
{
    View *self = (View *)object;
    int code;
    Range message;
    if (!read_status(self->head.status, &code, &message))
        return attribute_of_pure(self, str_status_message);
    return text_of(message);
}

static PyObject *view_attributes(PyObject *object, PyObject *wanted)
{
    View *self = (View *)object;
    PyObject *attributes = PyDict_New();
    Lookup *lookup = attributes == NULL ? NULL : lookup_of(wanted);
    int outcome =
        lookup == NULL ? FAILED : read_attributes(self->head.attributes, lookup, attributes);
    release_lookup(lookup);
    if (outcome == DONE)
        return attributes;
    Py_XDECREF(attributes);
    if (outcome == FAILED)
        return NULL;
    PyObject *pure = pure_of(self);
    return pure == NULL ? NULL : PyObject_CallMethodOneArg(pure, str_attributes, wanted);
}
