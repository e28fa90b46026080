/* The type of views. */

static PyObject *view_events(PyObject *object, PyObject *Py_UNUSED(unused))
{
    View *self = (View *)object;
    Range in = self->head.events, event;
    if (in.at == NULL)
        return PyList_New(0);
    PyObject *encoded_events = PyList_New(0);
    while (encoded_events != NULL && in.at < in.end) {
        in.at++; /* the tag */
        PyObject *raw = take(&in, &event) ? bytes_of(event) : NULL;
        if (raw == NULL || PyList_Append(encoded_events, raw) < 0)
            Py_CLEAR(encoded_events);
        Py_XDECREF(raw);
    }
    if (encoded_events == NULL)
        return NULL;
    PyObject *events = PyObject_CallOneArg(pure_events, encoded_events);
    Py_DECREF(encoded_events);
    return events;
}

static PyMethodDef view_methods[] = {
    {"attributes", view_attributes, METH_O, "The wanted attributes that the span has."},
    {"fingerprint", view_fingerprint, METH_O,
     "Bytes that are equal only where `attributes` gives equals; None if unusual."},
    {"events", view_events, METH_NOARGS, "The events in the order of the span."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef view_getters[] = {
    {"name", view_name, NULL, "The span's name.", NULL},
    {"span_kind", view_kind, NULL, "OTLP's number of the kind.", NULL},
    {"parent_is_remote", view_remote, NULL, "What the flags say of the parent; None if nothing.",
     NULL},
    {"dropped_attributes", view_dropped, NULL, "How many attributes the sender left out.", NULL},
    {"start_ns", view_start, NULL, "Unix nanoseconds.", NULL},
    {"end_ns", view_end, NULL, "Unix nanoseconds.", NULL},
    {"status_code", view_status_code, NULL, "0 unset, 1 ok, 2 error.", NULL},
    {"status_message", view_status_message, NULL, "What the status says, or \"\".", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_getters},
    {Py_tp_doc, "One span, readable; made by `view`."},
    {0, NULL},
};

static PyType_Spec view_spec = {
    .name = "otel_eval._native.View",
    .basicsize = sizeof(View),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};

/* The view of a payload of plain bytes. */
static PyObject *view_of(PyObject *payload)
{
    Head head;
    Bytes at = (Bytes)PyBytes_AS_STRING(payload);
    if (!walk_span((Range){at, at + PyBytes_GET_SIZE(payload)}, &head))
        return PyObject_CallOneArg(pure_view, payload);
    View *self = PyObject_New(View, view_type);
    if (self == NULL)
        return NULL;
    self->payload = Py_NewRef(payload);
    self->pure = NULL;
    self->head = head;
    return (PyObject *)self;
}

static PyObject *make_view(PyObject *Py_UNUSED(module), PyObject *payload)
{
    if (pure_view == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
        return NULL;
    }
    return PyBytes_CheckExact(payload) ? view_of(payload) : PyObject_CallOneArg(pure_view, payload);
}
