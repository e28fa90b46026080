/* The two types of prepared expectations.
 *
 * Knows how they are asked, copied and pickled; knows nothing of how they answer.
 */

static PyObject *remade(const char *maker, PyObject *given)
{
    PyObject *module = PyImport_ImportModule("otel_eval._matching");
    PyObject *make = module == NULL ? NULL : PyObject_GetAttrString(module, maker);
    PyObject *reduced = make == NULL ? NULL : Py_BuildValue("(OO)", make, given);
    Py_XDECREF(make);
    Py_XDECREF(module);
    return reduced;
}

static PyObject *names_reduce(PyObject *object, PyObject *Py_UNUSED(none))
{
    PyObject *given = PyTuple_Pack(1, ((Names *)object)->names);
    PyObject *reduced = given == NULL ? NULL : remade("names", given);
    Py_XDECREF(given);
    return reduced;
}

static PyObject *calls_reduce(PyObject *object, PyObject *Py_UNUSED(none))
{
    return remade("calls", ((Calls *)object)->given);
}

static PyMethodDef names_methods[] = {
    {"weight", (PyCFunction)(void (*)(void))names_weight, METH_FASTCALL,
     "weight(visits, match, nested, concurrency): as `weight_of_names`; NotImplemented where the visits are not plain."},
    {"__reduce__", names_reduce, METH_NOARGS, "Pickled and copied as the names."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef calls_methods[] = {
    {"weight", (PyCFunction)(void (*)(void))calls_weight, METH_FASTCALL,
     "weight(visits, match, concurrency, shortcut): (pairs, weight); None where only Python can tell."},
    {"__reduce__", calls_reduce, METH_NOARGS, "Pickled and copied as what it was made of."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot names_slots[] = {
    {Py_tp_dealloc, names_dealloc},
    {Py_tp_methods, names_methods},
    {Py_tp_doc, "Expected names, prepared once."},
    {0, NULL},
};

static PyType_Slot calls_slots[] = {
    {Py_tp_dealloc, calls_dealloc},
    {Py_tp_methods, calls_methods},
    {Py_tp_doc, "Expected calls with their arguments, prepared once."},
    {0, NULL},
};

static PyType_Spec names_spec = {
    .name = "otel_eval._matching.Names",
    .basicsize = sizeof(Names),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = names_slots,
};

static PyType_Spec calls_spec = {
    .name = "otel_eval._matching.Calls",
    .basicsize = sizeof(Calls),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = calls_slots,
};
