/* Plain Python values as JSON: what `json` writes without spaces and with characters as they are.
 *
 * Knows texts, whole numbers of 64 bits, finite floats, truth, None, and lists, tuples and dicts of these. Anything else is
 * ODD, and Python writes it.
 */

#define DEEPEST 64

static int put_value(Buffer *out, PyObject *value, int depth);

static int put_escaped(Buffer *out, unsigned char byte)
{
    char hex[7];
    switch (byte) {
    case '"': return PUT(out, "\\\"");
    case '\\': return PUT(out, "\\\\");
    case '\n': return PUT(out, "\\n");
    case '\r': return PUT(out, "\\r");
    case '\t': return PUT(out, "\\t");
    case '\f': return PUT(out, "\\f");
    case '\b': return PUT(out, "\\b");
    default: PyOS_snprintf(hex, sizeof hex, "\\u%04x", byte); return put(out, hex, 6);
    }
}

static int put_text(Buffer *out, PyObject *text)
{
    Py_ssize_t size;
    const char *at = PyUnicode_AsUTF8AndSize(text, &size);
    if (at == NULL) { /* half a character: Python knows what becomes of it */
        PyErr_Clear();
        return ODD;
    }
    const char *stop = at + size, *from = at;
    int done = PUT(out, "\"");
    for (; done == DONE && at < stop; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        done = put(out, from, (size_t)(at - from));
        if (done == DONE)
            done = put_escaped(out, byte);
        from = at + 1;
    }
    if (done == DONE)
        done = put(out, from, (size_t)(stop - from));
    return done == DONE ? PUT(out, "\"") : done;
}

static int put_whole(Buffer *out, PyObject *number)
{
    int over;
    char digits[24];
    long long value = PyLong_AsLongLongAndOverflow(number, &over);
    if (over)
        return ODD;
    return put(out, digits, (size_t)PyOS_snprintf(digits, sizeof digits, "%lld", value));
}

static int put_float(Buffer *out, double value)
{
    if (!isfinite(value))
        return ODD;
    char *digits = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (digits == NULL)
        return FAILED;
    int done = put(out, digits, strlen(digits));
    PyMem_Free(digits);
    return done;
}

/* Nothing of Python runs while it is walked, so it stays as it is. */
static int put_dict(Buffer *out, PyObject *dict, int depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int done = PUT(out, "{"), first = 1;
    while (done == DONE && PyDict_Next(dict, &at, &key, &value)) {
        if (!first)
            done = PUT(out, ",");
        first = 0;
        if (done == DONE)
            done = PyUnicode_CheckExact(key) ? put_text(out, key) : ODD;
        if (done == DONE)
            done = PUT(out, ":");
        if (done == DONE)
            done = put_value(out, value, depth);
    }
    return done == DONE ? PUT(out, "}") : done;
}

static int put_list(Buffer *out, PyObject *list, int depth)
{
    int done = PUT(out, "[");
    for (Py_ssize_t at = 0; done == DONE && at < PySequence_Fast_GET_SIZE(list); at++) {
        if (at)
            done = PUT(out, ",");
        if (done == DONE)
            done = put_value(out, PySequence_Fast_GET_ITEM(list, at), depth);
    }
    return done == DONE ? PUT(out, "]") : done;
}

static int put_value(Buffer *out, PyObject *value, int depth)
{
    if (PyUnicode_CheckExact(value))
        return put_text(out, value);
    if (value == Py_None)
        return PUT(out, "null");
    if (PyBool_Check(value))
        return value == Py_True ? PUT(out, "true") : PUT(out, "false");
    if (PyLong_CheckExact(value))
        return put_whole(out, value);
    if (PyFloat_CheckExact(value))
        return put_float(out, PyFloat_AS_DOUBLE(value));
    if (depth == DEEPEST)
        return ODD;
    if (PyDict_CheckExact(value))
        return put_dict(out, value, depth + 1);
    return PyList_CheckExact(value) || PyTuple_CheckExact(value) ? put_list(out, value, depth + 1) : ODD;
}
