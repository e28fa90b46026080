/* Expected calls with their arguments, prepared once.
 *
 * Knows which of them are of one kind, name and arguments equal, and which kinds and places a name has.
 */

#define ANY 0 /* in place of a node: it names no arguments */

typedef struct {
    PyObject_HEAD
    PyObject *given;        /* what it was made of */
    PyObject *codes;        /* name: its number */
    PyObject *names, *arguments, *unrecorded; /* borrowed from it */
    Store store;            /* of the arguments */
    Kinds kinds;            /* by name and arguments */
    int *code, *node;       /* by kind: the number of its name, its arguments or ANY */
    int *ordinal, *which;   /* by kind: which one of its name it is; by place, in the order of `places`: that of its kind */
    int *table, table_room; /* open hash: a kind, or -1 */
    ByName places, own;     /* places and kinds of each name */
    int *asks;              /* by name: whether some call of that name names arguments */
    long long *steps;       /* by name: what Python counts for comparing one call with all kinds of that name */
    int mode, nested, bare; /* `bare`: some call names no arguments */
    long long many_pairs, most_steps, compared, key;
} Calls;

static PyTypeObject *calls_type;

static void calls_dealloc(PyObject *object)
{
    Calls *self = (Calls *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->given);
    Py_XDECREF(self->codes);
    Py_XDECREF(self->store.keys);
    Py_XDECREF(self->store.scalars);
    free_store(&self->store);
    free_kinds(&self->kinds);
    PyMem_Free(self->code);
    PyMem_Free(self->table);
    PyMem_Free(self->steps);
    PyObject_Free(object);
    Py_DECREF(type);
}

static uint64_t hash_of(const Store *store, int code, int node)
{
    return mixed((uint64_t)code, node == ANY ? 0 : node_of(store, node)->hash);
}

/* The place in the table of the kind with this name and these arguments, or the free place where it would be. */
static int place_of(const Calls *self, const Store *store, int code, int node)
{
    int place = (int)(hash_of(store, code, node) & (uint64_t)(self->table_room - 1));
    for (; self->table[place] >= 0; place = (place + 1) & (self->table_room - 1)) {
        int kind = self->table[place], known_node = self->node[kind];
        if (self->code[kind] == code && (node == ANY || known_node == ANY ? node == known_node
                                                                         : equal_values(&self->store, known_node, store, node, 0)))
            break;
    }
    return place;
}

/* Numbers for the kinds; 0, or -1 if an argument is not plain. */
static int number_kinds(Calls *self)
{
    int made = 0;
    for (Py_ssize_t place = 0; place < self->kinds.count; place++) {
        PyObject *own = PyTuple_GET_ITEM(self->arguments, place);
        int code = new_number(self->codes, PyTuple_GET_ITEM(self->names, place));
        int node = own == self->unrecorded ? ANY : read_arguments(&self->store, own);
        if (code < 0 || node == ODD)
            return -1;
        self->asks[code] |= node != ANY;
        self->bare |= node == ANY;
        int *slot = &self->table[place_of(self, &self->store, code, node)];
        if (*slot < 0) {
            self->code[made] = code;
            self->node[made] = node;
            *slot = made++;
        }
        self->kinds.kind[place] = *slot;
    }
    return lay_out(&self->kinds, made);
}

static void count_steps(Calls *self)
{
    for (Py_ssize_t kind = 0; kind < self->kinds.made; kind++)
        if (self->node[kind] != ANY) {
            const Node *node = node_of(&self->store, self->node[kind]);
            self->steps[self->code[kind]] += self->compared;
            if (self->mode == OVERLAP && node->form == OBJECT)
                self->steps[self->code[kind]] += self->key * node->count;
        }
}

static int allot_calls(Calls *self, Py_ssize_t count)
{
    for (self->table_room = 8; self->table_room < 2 * count; self->table_room *= 2)
        ;
    self->codes = PyDict_New();
    self->store.keys = PyDict_New();
    self->store.scalars = PyDict_New();
    self->store.expects = 1;
    self->code = PyMem_Calloc((size_t)(9 * count + 8), sizeof(int));
    self->table = PyMem_Malloc((size_t)self->table_room * sizeof(int));
    self->steps = PyMem_Calloc((size_t)count + 1, sizeof(long long));
    if (self->codes == NULL || self->store.keys == NULL || self->store.scalars == NULL)
        return -1;
    if (self->code == NULL || self->table == NULL || self->steps == NULL)
        return -1;
    memset(self->table, 0xFF, (size_t)self->table_room * sizeof(int));
    self->node = self->code + count;
    self->asks = self->node + count;
    self->places.all = self->asks + count;
    self->own.all = self->places.all + count;
    self->places.first = self->own.all + count;
    self->own.first = self->places.first + count + 1;
    self->ordinal = self->own.first + count + 1;
    self->which = self->ordinal + count;
    return allot_kinds(&self->kinds, count);
}

static int fill_calls(Calls *self)
{
    PyObject *alone = PyUnicode_InternFromString("__value__"); /* the key 0, of what is no object */
    int numbered = alone == NULL || allot_calls(self, PyTuple_GET_SIZE(self->names)) < 0 ? -1 : new_number(self->store.keys, alone);
    Py_XDECREF(alone);
    if (numbered < 0 || number_kinds(self) < 0)
        return -1;
    int made = (int)PyDict_GET_SIZE(self->codes);
    gather(&self->places, self->code, self->kinds.kind, (int)self->kinds.count, made);
    gather(&self->own, self->code, NULL, (int)self->kinds.made, made);
    for (int name = 0; name < made; name++)
        for (int at = self->own.first[name]; at < self->own.first[name + 1]; at++)
            self->ordinal[self->own.all[at]] = at - self->own.first[name];
    for (int at = 0; at < self->kinds.count; at++)
        self->which[at] = self->ordinal[self->kinds.kind[self->places.all[at]]];
    count_steps(self);
    self->store.expects = 0;
    return 0;
}

static int are_names(PyObject *names)
{
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(names); place++)
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, place)))
            return 0;
    return PyTuple_GET_SIZE(names) < 1 << 16;
}

static PyObject *prepare_calls(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *names, *arguments, *unrecorded;
    int mode, nested;
    long long many_pairs, most_steps, compared, key;
    if (!PyArg_ParseTuple(given, "O!O!Oip(LLLL)", &PyTuple_Type, &names, &PyTuple_Type, &arguments, &unrecorded, &mode, &nested,
                          &many_pairs, &most_steps, &compared, &key))
        return NULL;
    if (PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(arguments) || !are_names(names))
        Py_RETURN_NONE;
    Calls *self = PyObject_New(Calls, calls_type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->given = Py_NewRef(given);
    self->names = names, self->arguments = arguments, self->unrecorded = unrecorded;
    self->mode = mode, self->nested = nested;
    self->many_pairs = many_pairs, self->most_steps = most_steps, self->compared = compared, self->key = key;
    if (fill_calls(self) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
