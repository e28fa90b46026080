/* Sets of wanted keys, made fit for look-ups.
 *
 * At most SLOTS sets are kept.
 */

typedef struct {
    char *at; /* owned by `key_bytes` */
    Py_ssize_t size;
    PyObject *key_bytes, *key_text;
    int presence; /* it matters only whether the attribute holds anything */
} Key;

/* One `Wanted`, made fit for look-ups: an open hash over its keys, and its prefixes. */
typedef struct {
    PyObject *wanted; /* a strong reference, so that its address means it alone */
    Key *table;
    size_t mask;
    PyObject *prefixes; /* a tuple of bytes */
    int is_short;       /* a fingerprint leaves long texts out */
    int is_named;       /* and ends with the span's name */
    int references; /* its slot, and every walk that uses it: Python may run during one and fill the
                    slot anew */
} Lookup;

#define SLOTS 4096
static Lookup *lookups[SLOTS];

/* Keys of one family begin alike, so their length and their last bytes distinguish them. */
static size_t hash_of(const char *at, Py_ssize_t size)
{
    uint64_t tail = 0;
    memcpy(&tail, size > 8 ? at + size - 8 : at, size > 8 ? 8 : (size_t)size);
    return (size_t)(((tail ^ (uint64_t)size) * 0x9E3779B97F4A7C15ull) >> 40);
}

static void release_lookup(Lookup *lookup)
{
    if (lookup == NULL || --lookup->references > 0)
        return;
    for (size_t index = 0; lookup->table != NULL && index <= lookup->mask; index++) {
        Py_XDECREF(lookup->table[index].key_bytes);
        Py_XDECREF(lookup->table[index].key_text);
    }
    PyMem_Free(lookup->table);
    Py_XDECREF(lookup->prefixes);
    Py_XDECREF(lookup->wanted);
    PyMem_Free(lookup);
}

static int add_key(Lookup *lookup, PyObject *key, PyObject *presence)
{
    char *at;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(key, &at, &size) < 0)
        return -1;
    int present = PySet_Contains(presence, key);
    PyObject *as_text = present < 0 ? NULL : PyUnicode_DecodeUTF8(at, size, "replace");
    if (as_text == NULL)
        return -1;
    PyUnicode_InternInPlace(&as_text);
    size_t index = hash_of(at, size) & lookup->mask;
    while (lookup->table[index].at != NULL)
        index = (index + 1) & lookup->mask;
    lookup->table[index] = (Key){at, size, Py_NewRef(key), as_text, present};
    return 0;
}

static int fill(Lookup *lookup, PyObject *keys, PyObject *presence)
{
    Py_ssize_t count = PyObject_Size(keys);
    if (count < 0)
        return -1;
    size_t room = 8;
    while (room < (size_t)count * 4) /* mostly empty: most attributes are not wanted */
        room *= 2;
    lookup->table = PyMem_Calloc(room, sizeof(Key));
    if (lookup->table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    lookup->mask = room - 1;
    PyObject *key, *iterator = PyObject_GetIter(keys);
    if (iterator == NULL)
        return -1;
    int failed = 0;
    while (!failed && (key = PyIter_Next(iterator)) != NULL) {
        failed = add_key(lookup, key, presence) < 0;
        Py_DECREF(key);
    }
    Py_DECREF(iterator);
    return failed || PyErr_Occurred() ? -1 : 0;
}

/* Whether an attribute of the object is true; -1 if it cannot be read. */
static int is_set(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int is_true = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return is_true;
}

static Lookup *new_lookup(PyObject *wanted)
{
    Lookup *lookup = PyMem_Calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return (Lookup *)PyErr_NoMemory();
    lookup->references = 1;
    lookup->wanted = Py_NewRef(wanted);
    lookup->prefixes = PyObject_GetAttr(wanted, str_raw_prefixes);
    PyObject *keys = lookup->prefixes == NULL ? NULL : PyObject_GetAttr(wanted, str_raw_keys);
    PyObject *presence = keys == NULL ? NULL : PyObject_GetAttr(wanted, str_raw_presence);
    int failed = presence == NULL || fill(lookup, keys, presence) < 0;
    if (!failed && !PyTuple_Check(lookup->prefixes)) {
        PyErr_SetString(PyExc_TypeError, "raw_prefixes must be a tuple");
        failed = 1;
    }
    failed = failed || (lookup->is_short = is_set(wanted, str_short)) < 0 ||
             (lookup->is_named = is_set(wanted, str_named)) < 0;
    Py_XDECREF(keys);
    Py_XDECREF(presence);
    if (!failed)
        return lookup;
    release_lookup(lookup);
    return NULL;
}

/* What the wanted keys are looked up in; the caller lets go of it. */
static Lookup *lookup_of(PyObject *wanted)
{
    Lookup **slot = &lookups[((uintptr_t)wanted >> 4) % SLOTS];
    if (*slot == NULL || (*slot)->wanted != wanted) {
        Lookup *fresh = new_lookup(wanted);
        if (fresh == NULL)
            return NULL;
        Lookup *old = *slot;
        *slot = fresh;
        release_lookup(old);
    }
    (*slot)->references++;
    return *slot;
}

static Key *find_key(const Lookup *lookup, Range key)
{
    Py_ssize_t size = key.end - key.at;
    size_t index = hash_of((const char *)key.at, size) & lookup->mask;
    for (Key *entry; (entry = &lookup->table[index])->at != NULL;
         index = (index + 1) & lookup->mask)
        if (entry->size == size && memcmp(entry->at, key.at, (size_t)size) == 0)
            return entry;
    return NULL;
}

static int has_prefix(const Lookup *lookup, Range key)
{
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(lookup->prefixes); index++) {
        char *at;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(lookup->prefixes, index), &at, &size) < 0)
            return -1;
        if (size <= key.end - key.at && memcmp(at, key.at, (size_t)size) == 0)
            return 1;
    }
    return 0;
}
