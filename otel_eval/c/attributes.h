/* The wanted attributes of a span as Python values.
 *
 * The four plain kinds of value are decoded here, any other by Python.
 */

/* The next KeyValue, if it is exactly one key and one value. */
static int take_pair(Range *in, Range *key, Range *value)
{
    Range pair;
    if (in->at == in->end || *in->at++ != 0x4A || !take(in, &pair) || pair.at == pair.end ||
        *pair.at++ != 0x0A)
        return 0;
    if (!take(&pair, key) || pair.at == pair.end || *pair.at++ != 0x12)
        return 0;
    return take(&pair, value) && pair.at == pair.end;
}

/* Lists, maps and bytes: Python reads them. One that it cannot read is absent, as there. */
static int decode_in_python(Range raw, PyObject **out)
{
    PyObject *content = bytes_of(raw);
    *out = content == NULL ? NULL : PyObject_CallOneArg(pure_decode, content);
    Py_XDECREF(content);
    if (*out != NULL)
        return DONE;
    if (!PyErr_ExceptionMatches(decode_error))
        return FAILED;
    PyErr_Clear();
    return DONE;
}

static int decode_number(Range raw, PyObject **out)
{
    uint64_t number;
    if (!take_varint(&raw, &number) || raw.at != raw.end)
        return UNUSUAL;
    *out = PyLong_FromLongLong((long long)number);
    return *out == NULL ? FAILED : DONE;
}

static int decode_text(Range raw, PyObject **out)
{
    Range content;
    if (!take(&raw, &content) || raw.at != raw.end)
        return UNUSUAL;
    *out = text_of(content);
    return *out == NULL ? FAILED : DONE;
}

/* DONE with *out == NULL: the value cannot be read. */
static int decode_value(Range raw, PyObject **out)
{
    *out = NULL;
    if (raw.at == raw.end) {
        *out = Py_NewRef(Py_None);
        return DONE;
    }
    Range content = {raw.at + 1, raw.end};
    switch (*raw.at) {
    case 0x0A: return decode_text(content, out);
    case 0x10:
        if (content.end - content.at != 1 || *content.at > 1)
            return UNUSUAL;
        *out = PyBool_FromLong(*content.at);
        return DONE;
    case 0x18: return decode_number(content, out);
    case 0x21:
        if (content.end - content.at != 8)
            return UNUSUAL;
        double number = PyFloat_Unpack8((const char *)content.at, 1);
        *out = number == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
        return *out == NULL ? FAILED : DONE;
    case 0x2A:
    case 0x32:
    case 0x3A: return decode_in_python(raw, out);
    default: return UNUSUAL;
    }
}

/* Whether the key is wanted, and then its text. */
static int key_text(const Lookup *lookup, Range key, PyObject **out)
{
    Key *entry = find_key(lookup, key);
    *out = NULL;
    if (entry != NULL) {
        *out = Py_NewRef(entry->key_text);
        return DONE;
    }
    int is_wanted = has_prefix(lookup, key);
    if (is_wanted <= 0)
        return is_wanted;
    *out = text_of(key);
    return *out == NULL ? FAILED : DONE;
}

static int add_attribute(PyObject *attributes, const Lookup *lookup, Range key, Range value)
{
    PyObject *name, *decoded;
    int is_wanted = key_text(lookup, key, &name);
    if (is_wanted != 1)
        return is_wanted < 0 ? FAILED : DONE;
    int is_there = PyDict_Contains(attributes, name), outcome = FAILED;
    if (is_there > 0)
        outcome = UNUSUAL; /* twice: Python decides which counts */
    else if (is_there == 0)
        outcome = decode_value(value, &decoded);
    if (outcome == DONE && decoded != NULL) {
        if (PyDict_SetItem(attributes, name, decoded) < 0)
            outcome = FAILED;
        Py_DECREF(decoded);
    }
    Py_DECREF(name);
    return outcome;
}

static int read_attributes(Range in, const Lookup *lookup, PyObject *attributes)
{
    Range key, value;
    while (in.at < in.end) {
        if (!take_pair(&in, &key, &value))
            return UNUSUAL;
        int outcome = add_attribute(attributes, lookup, key, value);
        if (outcome != DONE)
            return outcome;
    }
    return DONE;
}
