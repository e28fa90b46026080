/* The wanted attributes of a span as Python values.
 *
 * The four plain kinds of value are decoded here, any other by Python.
 */

/* The next KeyValue, if it is exactly one key and one value. */
static int take_pair(Range *in, Range *key, Range *value)
{
    Range pair;
    if (in->at == in->end || *in->at++ != 0x4A || !take(in, &pair) || pair.at == pair.end || *pair.at++ != 0x0A)
        return 0;
    if (!take(&pair, key) || pair.at == pair.end || *pair.at++ != 0x12)
        return 0;
    return take(&pair, value) && pair.at == pair.end;
}

/* Lists, maps and bytes: Python reads them. One that it cannot read is absent, as there. */
static int decode_elsewhere(Range raw, PyObject **out)
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
        return ODD;
    *out = PyLong_FromLongLong((long long)number);
    return *out == NULL ? FAILED : DONE;
}

static int decode_text(Range raw, PyObject **out)
{
    Range content;
    if (!take(&raw, &content) || raw.at != raw.end)
        return ODD;
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
            return ODD;
        *out = PyBool_FromLong(*content.at);
        return DONE;
    case 0x18: return decode_number(content, out);
    case 0x21:
        if (content.end - content.at != 8)
            return ODD;
        double number = PyFloat_Unpack8((const char *)content.at, 1);
        *out = number == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
        return *out == NULL ? FAILED : DONE;
    case 0x2A:
    case 0x32:
    case 0x3A: return decode_elsewhere(raw, out);
    default: return ODD;
    }
}

/* Whether the key is wanted, and then its text. */
static int key_text(const Lookup *lookup, Range key, PyObject **out)
{
    Key *held = find_key(lookup, key);
    *out = NULL;
    if (held != NULL) {
        *out = Py_NewRef(held->key_text);
        return DONE;
    }
    int wanted = has_prefix(lookup, key);
    if (wanted <= 0)
        return wanted;
    *out = text_of(key);
    return *out == NULL ? FAILED : DONE;
}

static int add_attribute(PyObject *found, const Lookup *lookup, Range key, Range value)
{
    PyObject *name, *decoded;
    int wanted = key_text(lookup, key, &name);
    if (wanted != 1)
        return wanted < 0 ? FAILED : DONE;
    int done = PyDict_Contains(found, name);
    done = done < 0 ? FAILED : done ? ODD : decode_value(value, &decoded); /* there twice: Python decides which counts */
    if (done == DONE && decoded != NULL) {
        if (PyDict_SetItem(found, name, decoded) < 0)
            done = FAILED;
        Py_DECREF(decoded);
    }
    Py_DECREF(name);
    return done;
}

static int read_attributes(Range in, const Lookup *lookup, PyObject *found)
{
    Range key, value;
    while (in.at < in.end) {
        if (!take_pair(&in, &key, &value))
            return ODD;
        int done = add_attribute(found, lookup, key, value);
        if (done != DONE)
            return done;
    }
    return DONE;
}
