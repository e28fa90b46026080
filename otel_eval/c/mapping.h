/* The attributes of a span of this process: a dictionary of Python objects.
 *
 * No Python code runs during a walk, so no other thread changes the dictionary meanwhile. What is
 * not plain is left to Python, by None.
 */

/* As in Python. */
#define MAX_MARKS 48
#define NUMBER_BYTES 32
#define ATTRIBUTE_BYTES 50

/* The key as UTF-8; 0 if it is no plain text. */
static int key_range(PyObject *key, Range *out)
{
    Py_ssize_t size = 0;
    Bytes at = PyUnicode_CheckExact(key) ? (Bytes)PyUnicode_AsUTF8AndSize(key, &size) : NULL;
    if (at == NULL)
        PyErr_Clear();
    *out = (Range){at, at + size};
    return at != NULL;
}

/* Whether it is a boolean, a float, or an integer of 64 bits. */
static int is_number(PyObject *value)
{
    int overflow = 0;
    if (PyLong_CheckExact(value))
        PyLong_AsLongLongAndOverflow(value, &overflow);
    else
        overflow = !PyBool_Check(value) && !PyFloat_CheckExact(value);
    return !overflow;
}

static int choose(PyObject *attributes, const Lookup *lookup, PyObject *chosen)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    Range text;
    while (PyDict_Next(attributes, &position, &key, &value)) {
        if (!key_range(key, &text))
            return UNUSUAL;
        int is_wanted = find_key(lookup, text) != NULL ? 1 : has_prefix(lookup, text);
        if (is_wanted > 0 && !PyUnicode_CheckExact(value) && !is_number(value))
            return UNUSUAL;
        if (is_wanted < 0 || (is_wanted && PyDict_SetItem(chosen, key, value) < 0))
            return FAILED;
    }
    return DONE;
}

static PyObject *wanted_of(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyDict_Check(args[0]))
        Py_RETURN_NONE;
    PyObject *chosen = PyDict_New();
    Lookup *lookup = chosen == NULL ? NULL : lookup_of(args[1]);
    int outcome = lookup == NULL ? FAILED : choose(args[0], lookup, chosen);
    release_lookup(lookup);
    if (outcome == DONE)
        return chosen;
    Py_XDECREF(chosen);
    return outcome == FAILED ? NULL : Py_NewRef(Py_None);
}

/* Put what stands for an attribute: its key, and then its text (None where that does not matter or
 * is long), or the type and the value; their number, or -1. */
static int put_marks(PyObject **marks, const Lookup *lookup, const Key *entry, PyObject *value)
{
    int count = 1, is_text = PyUnicode_CheckExact(value);
    if (!is_text && !is_number(value))
        return -1;
    if (is_text && PyUnicode_GET_LENGTH(value) > 0 &&
        (entry->presence || (lookup->is_short && PyUnicode_GET_LENGTH(value) > LONG_TEXT)))
        value = Py_None;
    marks[0] = Py_NewRef(entry->key_text);
    if (!is_text)
        marks[count++] = Py_NewRef(Py_TYPE(value)); /* 1, 1.0 and True are equal */
    marks[count++] = Py_NewRef(value);
    return count;
}

/* The marks hold references: making the tuple may run the garbage collector, and that any code. */
static PyObject *marks_of(PyObject *attributes, const Lookup *lookup, PyObject *name)
{
    PyObject *key, *value, *marks[MAX_MARKS];
    Py_ssize_t position = 0;
    int count = 0, added = 0;
    Range text;
    if (lookup->is_named)
        marks[count++] = Py_NewRef(name);
    while (added >= 0 && PyDict_Next(attributes, &position, &key, &value)) {
        Key *entry = key_range(key, &text) ? find_key(lookup, text) : NULL;
        if (entry == NULL)
            continue;
        added = count > MAX_MARKS - 3 ? -1 : put_marks(marks + count, lookup, entry, value);
        count += added > 0 ? added : 0;
    }
    PyObject *fingerprint = added < 0 ? Py_NewRef(Py_None) : PyTuple_New(count);
    for (int index = 0; index < count; index++) {
        if (added < 0 || fingerprint == NULL)
            Py_DECREF(marks[index]);
        else
            PyTuple_SET_ITEM(fingerprint, index, marks[index]);
    }
    return fingerprint;
}

static PyObject *fingerprint_of(PyObject *Py_UNUSED(module), PyObject *const *args,
                                Py_ssize_t count)
{
    if (count != 3 || !PyDict_Check(args[0]))
        Py_RETURN_NONE;
    Lookup *lookup = lookup_of(args[1]);
    PyObject *fingerprint = lookup == NULL ? NULL : marks_of(args[0], lookup, args[2]);
    release_lookup(lookup);
    return fingerprint;
}

/* The bytes of a value that has no elements; -1 if it may have some. */
static Py_ssize_t bytes_of_value(PyObject *value)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_IS_ASCII(value))
        return (Py_ssize_t)sizeof(PyASCIIObject) + PyUnicode_GET_LENGTH(value) + 1;
    if (is_number(value))
        return NUMBER_BYTES;
    if (!PyUnicode_CheckExact(value) && !PyLong_CheckExact(value) && !PyBytes_CheckExact(value))
        return -1;
    PyObject *size = PyObject_CallMethodNoArgs(value, str_sizeof);
    Py_ssize_t bytes = size == NULL ? -1 : PyLong_AsSsize_t(size);
    Py_XDECREF(size);
    return bytes;
}

static PyObject *size_of_attributes(PyObject *Py_UNUSED(module), PyObject *attributes)
{
    PyObject *key, *value;
    Py_ssize_t position = 0, size = 0, bytes;
    if (!PyDict_Check(attributes))
        Py_RETURN_NONE;
    while (PyDict_Next(attributes, &position, &key, &value)) {
        if ((bytes = bytes_of_value(value)) < 0)
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        size += ATTRIBUTE_BYTES + bytes;
    }
    return PyLong_FromSsize_t(size);
}
