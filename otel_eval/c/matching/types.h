/* The types of prepared expectations and of what scores by them.
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

static PyObject *scoring_reduce(PyObject *object, PyObject *Py_UNUSED(none))
{
    return remade("scoring", ((Scoring *)object)->given);
}

static PyMethodDef names_methods[] = {
    {"weight", (PyCFunction)(void (*)(void))names_weight, METH_FASTCALL,
     "weight(visits, match, nested, concurrency): as `weight_of_names`; NotImplemented where the visits are not plain."},
    {"pairs", (PyCFunction)(void (*)(void))names_pairs, METH_FASTCALL,
     "pairs(visits, in any order, nested, concurrency): [(expected, actual), ...] as `align`; None where only Python can tell."},
    {"__reduce__", names_reduce, METH_NOARGS, "Pickled and copied as the names."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef calls_methods[] = {
    {"weight", (PyCFunction)(void (*)(void))calls_weight, METH_FASTCALL,
     "weight(visits, match, concurrency, shortcut): (pairs, weight); None where only Python can tell."},
    {"pairs", (PyCFunction)(void (*)(void))calls_pairs, METH_FASTCALL,
     "pairs(visits, in any order, concurrency, shortcut): (pairs, what each weighs, pairs that agree but for their place), as\n"
     "`align`; None where only Python can tell."},
    {"__reduce__", calls_reduce, METH_NOARGS, "Pickled and copied as what it was made of."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef scoring_methods[] = {
    {"score", (PyCFunction)(void (*)(void))scoring_score, METH_FASTCALL,
     "score(scorer, run): the outcome of a run, which the scorer explains; None where only Python can tell."},
    {"__reduce__", scoring_reduce, METH_NOARGS, "Pickled and copied as what it was made of."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef telling_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Tell, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
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

static PyType_Slot scoring_slots[] = {
    {Py_tp_dealloc, scoring_dealloc},
    {Py_tp_methods, scoring_methods},
    {Py_tp_doc, "Scores runs of which nothing but the calls decides."},
    {0, NULL},
};

static PyType_Slot telling_slots[] = {
    {Py_tp_dealloc, telling_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, telling_members},
    {Py_tp_doc, "Explains one score."},
    {0, NULL},
};

static PyType_Spec scoring_spec = {
    .name = "otel_eval._matching.Scoring",
    .basicsize = sizeof(Scoring),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = scoring_slots,
};

static PyType_Spec telling_spec = {
    .name = "otel_eval._matching.Telling",
    .basicsize = sizeof(Tell),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = telling_slots,
};
