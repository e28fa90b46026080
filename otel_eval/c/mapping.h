/* The attributes of a span of this process: a dictionary of Python objects.
 *
 * No Python code runs during a walk, so no other thread changes the dictionary meanwhile. What is
 * not plain is left to Python, by None.
 */

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

static PyObject *result_of(int outcome, PyObject *result)
{
    if (outcome == DONE)
        return result;
    Py_XDECREF(result);
    return outcome == FAILED ? NULL : Py_NewRef(Py_None);
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
    return result_of(outcome, chosen);
}

/* Append what stands for an attribute: its key, and then its text (None where that does not matter
 * or is long), or the type and the value. */
static int add_marks(PyObject *marks, const Lookup *lookup, const Key *entry, PyObject *value)
{
    int overflow = 0;
    PyObject *type = NULL; /* 1, 1.0 and True are equal */
    if (PyUnicode_CheckExact(value)) {
        Py_ssize_t length = PyUnicode_GET_LENGTH(value);
        if (length > 0 && (entry->presence || (lookup->is_short && length > LONG_TEXT)))
            value = Py_None;
    } else if (PyLong_CheckExact(value) || PyBool_Check(value) || PyFloat_CheckExact(value))
        type = (PyObject *)Py_TYPE(value);
    else
        return UNUSUAL;
    if (PyLong_CheckExact(value)) {
        PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return UNUSUAL;
    }
    int failed = PyList_Append(marks, entry->key_text) < 0 ||
                 (type != NULL && PyList_Append(marks, type) < 0) ||
                 PyList_Append(marks, value) < 0;
    return failed ? FAILED : DONE;
}

static int mark(PyObject *attributes, const Lookup *lookup, PyObject *marks)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    Range text;
    while (PyDict_Next(attributes, &position, &key, &value)) {
        Key *entry = key_range(key, &text) ? find_key(lookup, text) : NULL;
        int outcome = entry == NULL ? DONE : add_marks(marks, lookup, entry, value);
        if (outcome != DONE)
            return outcome;
    }
    return DONE;
}

static PyObject *fingerprint_of(PyObject *Py_UNUSED(module), PyObject *const *args,
                                Py_ssize_t count)
{
    if (count != 3 || !PyDict_Check(args[0]))
        Py_RETURN_NONE;
    PyObject *marks = PyList_New(0);
    Lookup *lookup = marks == NULL ? NULL : lookup_of(args[1]);
    int outcome = lookup == NULL ? FAILED : DONE;
    if (outcome == DONE && lookup->is_named && PyList_Append(marks, args[2]) < 0)
        outcome = FAILED;
    if (outcome == DONE)
        outcome = mark(args[0], lookup, marks);
    release_lookup(lookup);
    PyObject *fingerprint = outcome == DONE ? PyList_AsTuple(marks) : NULL;
    Py_XDECREF(marks);
    return result_of(outcome, fingerprint);
}

/* The bytes of a value that has no elements; -1 if it may have some. */
static Py_ssize_t bytes_of_value(PyObject *value)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_IS_ASCII(value))
        return (Py_ssize_t)sizeof(PyASCIIObject) + PyUnicode_GET_LENGTH(value) + 1;
    if (!PyUnicode_CheckExact(value) && !PyLong_CheckExact(value) && !PyBool_Check(value) &&
        !PyFloat_CheckExact(value) && !PyBytes_CheckExact(value))
        return -1;
    PyObject *size = PyObject_CallMethodNoArgs(value, str_sizeof);
    Py_ssize_t bytes = size == NULL ? -1 : PyLong_AsSsize_t(size);
    Py_XDECREF(size);
    return bytes;
}

static PyObject *size_of_values(PyObject *Py_UNUSED(module), PyObject *attributes)
{
    PyObject *key, *value;
    Py_ssize_t position = 0, size = 0, bytes;
    if (!PyDict_Check(attributes))
        Py_RETURN_NONE;
    while (PyDict_Next(attributes, &position, &key, &value)) {
        if ((bytes = bytes_of_value(value)) < 0)
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        size += bytes;
    }
    return PyLong_FromSsize_t(size);
}
