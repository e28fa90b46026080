/* Expected names, prepared once, and what calls have in common with them.
 *
 * Knows numbers that stand for names, and rows of bits; knows no scorer. The row is that of the Python module that this
 * is a shortcut for: a bit is 0 where the longest common subsequence grows.
 */

typedef struct {
    PyObject_HEAD
    PyObject *names;                /* a tuple of strings */
    PyObject *codes;                /* name: the number that stands for it */
    Py_ssize_t count, kinds, words; /* names; different ones; 64 bits each in a row of so many bits as there are names */
    int *code, *often;              /* by place; by number */
    uint64_t *masks;                /* by number a row with the places where it stands */
} Names;

static PyTypeObject *names_type;

static void names_dealloc(PyObject *object)
{
    Names *self = (Names *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->names);
    Py_XDECREF(self->codes);
    PyMem_Free(self->code);
    PyMem_Free(self->masks);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* The number that stands for the name, -1 if none does; names are strings, so that no look-up runs Python code. */
static int code_of(PyObject *codes, PyObject *name)
{
    PyObject *code = PyDict_GetItemWithError(codes, name);
    return code == NULL ? -1 : (int)PyLong_AsLong(code);
}

/* The number that stands for the name, a new one if none does; -1 on failure. */
static int new_code(PyObject *codes, PyObject *name)
{
    PyObject *next = PyLong_FromSsize_t(PyDict_GET_SIZE(codes));
    PyObject *code = next == NULL ? NULL : PyDict_SetDefault(codes, name, next);
    int found = code == NULL ? -1 : (int)PyLong_AsLong(code);
    Py_XDECREF(next);
    return found;
}

static int number_names(Names *self)
{
    self->code = PyMem_Calloc((size_t)(2 * self->count + 1), sizeof(int));
    if ((self->codes = PyDict_New()) == NULL || self->code == NULL)
        return -1;
    self->often = self->code + self->count;
    for (Py_ssize_t place = 0; place < self->count; place++) {
        int code = new_code(self->codes, PyTuple_GET_ITEM(self->names, place));
        if (code < 0)
            return -1;
        self->often[self->code[place] = code]++;
    }
    self->kinds = PyDict_GET_SIZE(self->codes);
    self->words = (self->count + 63) / 64;
    self->masks = PyMem_Calloc((size_t)(self->kinds * self->words + 1), sizeof(uint64_t));
    for (Py_ssize_t place = 0; self->masks != NULL && place < self->count; place++)
        self->masks[self->code[place] * self->words + place / 64] |= (uint64_t)1 << place % 64;
    return self->masks == NULL ? -1 : 0;
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
    self->count = PyTuple_GET_SIZE(names);
    if (number_names(self) == 0)
        return (PyObject *)self;
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(self);
    return NULL;
}

/* How many names both sides have, each as often as the side that has it less often; `left` has room for every number. */
static Py_ssize_t in_common(const Names *self, const int *made, Py_ssize_t count, int *left)
{
    Py_ssize_t found = 0;
    memcpy(left, self->often, (size_t)self->kinds * sizeof(int));
    for (Py_ssize_t place = 0; place < count; place++)
        if (made[place] >= 0 && left[made[place]] > 0) {
            left[made[place]]--;
            found++;
        }
    return found;
}

/* A row after one more mask: row + hits | row - hits, word by word with the carry. */
static void add_mask(uint64_t *row, const uint64_t *mask, Py_ssize_t words)
{
    uint64_t carry = 0;
    for (Py_ssize_t word = 0; word < words; word++) {
        uint64_t was = row[word], hits = was & mask[word], sum = was + hits, carried = sum + carry;
        carry = (sum < was) | (carried < sum);
        row[word] = carried | (was - hits);
    }
}

static Py_ssize_t grown(const uint64_t *row, Py_ssize_t count)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t word = 0; word * 64 < count; word++) {
        uint64_t gains = ~row[word];
        if (count - word * 64 < 64)
            gains &= ((uint64_t)1 << (count - word * 64)) - 1;
        for (; gains; gains &= gains - 1)
            found++;
    }
    return found;
}

/* The length of a longest common subsequence; `row` has room for a row. */
static Py_ssize_t common_length(const Names *self, const int *made, Py_ssize_t count, uint64_t *row)
{
    memset(row, 0xFF, (size_t)self->words * sizeof *row);
    if (self->words == 1) { /* all in one register */
        uint64_t only = *row;
        for (Py_ssize_t place = 0; place < count; place++)
            if (made[place] >= 0) {
                uint64_t hits = only & self->masks[made[place]];
                only = (only + hits) | (only - hits);
            }
        *row = only;
    } else
        for (Py_ssize_t place = 0; place < count; place++)
            if (made[place] >= 0)
                add_mask(row, self->masks + made[place] * self->words, self->words);
    return grown(row, self->count);
}
