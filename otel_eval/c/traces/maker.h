/* Instances of classes of slots, from their values.
 *
 * Knows where slots lie; knows no class.
 */

/* Makes instances of one class of slots from values in the order of its fields: a frozen dataclass would set each of
 * them through object.__setattr__, at six times the cost. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *made;
    Py_ssize_t count;
    Py_ssize_t *offsets;
    vectorcallfunc call;
} Maker;

static PyTypeObject *maker_type;

static void maker_dealloc(PyObject *object)
{
    Maker *self = (Maker *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->made);
    PyMem_Free(self->offsets);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *maker_call(PyObject *object, PyObject *const *given, size_t flags, PyObject *names)
{
    Maker *self = (Maker *)object;
    if (names != NULL || PyVectorcall_NARGS(flags) != self->count) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd values in order", self->made->tp_name, self->count);
        return NULL;
    }
    PyObject *made = self->made->tp_alloc(self->made, 0);
    for (Py_ssize_t number = 0; made != NULL && number < self->count; number++)
        *(PyObject **)((char *)made + self->offsets[number]) = Py_NewRef(given[number]);
    return made;
}

/* Where the slot, of the type or of a base, lies in an instance; -1 if it is no plain slot. */
static Py_ssize_t offset_of(PyTypeObject *type, PyObject *name)
{
    PyObject *member = PyObject_GetAttr((PyObject *)type, name);
    Py_ssize_t offset = -1;
    if (member != NULL && Py_IS_TYPE(member, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(member)) &&
        ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else if (member != NULL)
        PyErr_Format(PyExc_TypeError, "%R is no slot of %s", name, type->tp_name);
    Py_XDECREF(member);
    return offset;
}

static int find_offsets(Maker *self, PyObject *names)
{
    for (Py_ssize_t number = 0; number < self->count; number++)
        if ((self->offsets[number] = offset_of(self->made, PyTuple_GET_ITEM(names, number))) < 0)
            return -1;
    return 0;
}

static PyObject *make_maker(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !PyType_Check(given[0]) || !PyTuple_CheckExact(given[1])) {
        PyErr_SetString(PyExc_TypeError, "maker(cls: type, names: tuple)");
        return NULL;
    }
    Maker *self = PyObject_New(Maker, maker_type);
    if (self == NULL)
        return NULL;
    self->made = (PyTypeObject *)Py_NewRef(given[0]);
    self->count = PyTuple_GET_SIZE(given[1]);
    self->call = maker_call;
    self->offsets = PyMem_Malloc((size_t)(self->count + 1) * sizeof(Py_ssize_t));
    if (self->offsets == NULL)
        PyErr_NoMemory();
    else if (find_offsets(self, given[1]) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static PyMemberDef maker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Maker, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_dealloc, maker_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, maker_members},
    {Py_tp_doc, "Makes instances of one class from the values of its slots."},
    {0, NULL},
};

static PyType_Spec maker_spec = {
    .name = "otel_eval._forest.Maker",
    .basicsize = sizeof(Maker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = maker_slots,
};
