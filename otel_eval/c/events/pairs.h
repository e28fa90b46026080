/* Attributes as KeyValue fields of a span event.
 *
 * Knows the fields of KeyValue and AnyValue that are needed for texts, numbers and truth; a dict or a list is JSON text.
 */

static int put_varint(Buffer *out, uint64_t number)
{
    char bytes[10];
    size_t size = 0;
    for (; number > 0x7F; number >>= 7)
        bytes[size++] = (char)(number | 0x80);
    bytes[size++] = (char)number;
    return put(out, bytes, size);
}

static size_t varint_size(uint64_t number)
{
    size_t size = 1;
    for (; number > 0x7F; number >>= 7)
        size++;
    return size;
}

static int put_sized(Buffer *out, char tag, const char *bytes, size_t size)
{
    if (put(out, &tag, 1) == FAILED || put_varint(out, size) == FAILED)
        return FAILED;
    return put(out, bytes, size);
}

/* A KeyValue whose AnyValue is one tag, and bytes which have a length of their own if they are text. */
static int put_pair(Buffer *out, const char *key, size_t key_size, char tag, const char *bytes, size_t size)
{
    int text = tag == 0x0A;
    size_t value = 1 + (text ? varint_size(size) : 0) + size;
    size_t pair = 1 + varint_size(key_size) + key_size + 1 + varint_size(value) + value;
    char head = 0x1A, middle = 0x12;
    if (put(out, &head, 1) == FAILED || put_varint(out, pair) == FAILED || put_sized(out, 0x0A, key, key_size) == FAILED)
        return FAILED;
    if (put(out, &middle, 1) == FAILED || put_varint(out, value) == FAILED)
        return FAILED;
    if (text)
        return put_sized(out, tag, bytes, size);
    return put(out, &tag, 1) == FAILED ? FAILED : put(out, bytes, size);
}

static int put_number(Buffer *out, const char *key, size_t key_size, PyObject *value)
{
    Buffer number;
    begin(&number);
    int over = 0;
    char tag = PyFloat_CheckExact(value) ? 0x21 : PyBool_Check(value) ? 0x10 : 0x18;
    if (tag == 0x21) {
        (void)make_room(&number, 8); /* its own room is enough, here and below */
        number.size = 8;
        if (PyFloat_Pack8(PyFloat_AS_DOUBLE(value), number.at, 1) < 0)
            return FAILED;
    } else {
        (void)put_varint(&number, (uint64_t)PyLong_AsLongLongAndOverflow(value, &over));
    }
    return over ? ODD : put_pair(out, key, key_size, tag, number.at, number.size);
}

static int put_json(Buffer *out, const char *key, size_t key_size, PyObject *value)
{
    Buffer json;
    begin(&json);
    int done = put_value(&json, value, 0);
    if (done == DONE)
        done = put_pair(out, key, key_size, 0x0A, json.at, json.size);
    end(&json);
    return done;
}

static int put_attribute(Buffer *out, PyObject *key, PyObject *value)
{
    Py_ssize_t key_size, size;
    const char *name = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8AndSize(key, &key_size) : NULL, *text;
    if (name != NULL && PyUnicode_CheckExact(value)) {
        text = PyUnicode_AsUTF8AndSize(value, &size);
        if (text != NULL)
            return put_pair(out, name, (size_t)key_size, 0x0A, text, (size_t)size);
    }
    if (PyErr_Occurred() || name == NULL) {
        PyErr_Clear();
        return ODD;
    }
    if (PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value))
        return put_number(out, name, (size_t)key_size, value);
    return PyDict_CheckExact(value) || PyList_CheckExact(value) ? put_json(out, name, (size_t)key_size, value) : ODD;
}
