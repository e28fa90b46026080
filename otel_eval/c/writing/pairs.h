/* KeyValues in OTLP's protobuf bytes.
 *
 * Of KeyValue and AnyValue it writes what is needed for texts, numbers, booleans and lists of them.
 */

enum { TEXT = 0x0A, TRUTH = 0x10, WHOLE = 0x18, FLOAT = 0x21, LIST = 0x2A }; /* tags of AnyValue */

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

/* The content of an AnyValue: a tag, and bytes which have a length of their own if they are a text or a list. */
static int put_content(Buffer *out, char tag, const char *bytes, size_t size)
{
    if (tag == TEXT || tag == LIST)
        return put_sized(out, tag, bytes, size);
    return put(out, &tag, 1) == FAILED ? FAILED : put(out, bytes, size);
}

static int put_pair(Buffer *out, char field, const char *key, size_t key_size, char tag, const char *bytes, size_t size)
{
    size_t value = 1 + (tag == TEXT || tag == LIST ? varint_size(size) : 0) + size;
    size_t pair = 1 + varint_size(key_size) + key_size + 1 + varint_size(value) + value;
    if (put(out, &field, 1) == FAILED || put_varint(out, pair) == FAILED || put_sized(out, 0x0A, key, key_size) == FAILED)
        return FAILED;
    if (PUT(out, "\x12") == FAILED || put_varint(out, value) == FAILED)
        return FAILED;
    return put_content(out, tag, bytes, size);
}

static int is_number(PyObject *value)
{
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value);
}

static int put_double(Buffer *out, double number)
{
    if (make_room(out, 8) == FAILED || PyFloat_Pack8(number, out->at + out->size, 1) < 0)
        return FAILED;
    out->size += 8;
    return DONE;
}

/* The bytes of a number or of truth behind their tag; ODD if it has more than 64 bits. */
static int put_number(Buffer *out, PyObject *value, char *tag)
{
    int over = 0;
    *tag = PyFloat_CheckExact(value) ? FLOAT : PyBool_Check(value) ? TRUTH : WHOLE;
    if (*tag == FLOAT)
        return put_double(out, PyFloat_AS_DOUBLE(value));
    uint64_t number = (uint64_t)PyLong_AsLongLongAndOverflow(value, &over);
    return over ? ODD : put_varint(out, number);
}

/* The bytes of a text; NULL without an error where it is none, or holds half a character. */
static const char *text_at(PyObject *text, size_t *size)
{
    Py_ssize_t count = 0;
    const char *at = PyUnicode_CheckExact(text) ? PyUnicode_AsUTF8AndSize(text, &count) : NULL;
    if (at == NULL)
        PyErr_Clear();
    *size = (size_t)count;
    return at;
}

/* What an AnyValue holds behind its tag, of a value that is neither a text nor a number; ODD if it is none of those either. */
typedef int (*Others)(Buffer *out, PyObject *value, char *tag);

static int put_value_of(Buffer *out, char field, const char *name, size_t name_size, PyObject *value, Others others)
{
    Buffer content;
    char tag;
    begin(&content);
    int done = is_number(value) ? put_number(&content, value, &tag) : others(&content, value, &tag);
    if (done == DONE)
        done = put_pair(out, field, name, name_size, tag, content.at, content.size);
    end(&content);
    return done;
}

/* An attribute in the field of that tag. */
static int put_attribute(Buffer *out, char field, PyObject *key, PyObject *value, Others others)
{
    size_t name_size, size;
    const char *name = text_at(key, &name_size), *text = text_at(value, &size);
    if (name == NULL)
        return ODD;
    if (text != NULL)
        return put_pair(out, field, name, name_size, TEXT, text, size);
    return put_value_of(out, field, name, name_size, value, others);
}
