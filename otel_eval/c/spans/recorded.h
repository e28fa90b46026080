/* Spans of the process, readable the way spans from the wire are.
 *
 * This covers the plain values that the SDK's attributes have: texts, numbers, truth, and lists of them. They are written as the
 * bytes that an exporter would send, so that everything which reads spans reads these too. Of anything else the Python view
 * is the only one, and it is asked about whatever is unusual in the others.
 */

static int put_scalar(Buffer *out, PyObject *value)
{
    Buffer number;
    char tag;
    size_t size;
    const char *text = text_at(value, &size);
    if (text != NULL)
        return put_sized(out, TEXT, text, size);
    if (!is_number(value))
        return ODD;
    begin(&number);
    int done = put_number(&number, value, &tag); /* always fits into the buffer's own room */
    return done == DONE ? put_content(out, tag, number.at, number.size) : done;
}

static int put_members(Buffer *out, PyObject *list)
{
    int done = DONE;
    Py_ssize_t count = Py_SIZE(list);
    for (Py_ssize_t number = 0; done == DONE && number < count; number++) {
        Buffer member;
        begin(&member);
        done = put_scalar(&member, PySequence_Fast_GET_ITEM(list, number));
        if (done == DONE)
            done = put_sized(out, 0x0A, member.at, member.size);
        end(&member);
    }
    return done;
}

static int put_list(Buffer *out, PyObject *value, char *tag)
{
    *tag = LIST;
    return PyTuple_CheckExact(value) || PyList_CheckExact(value) ? put_members(out, value) : ODD;
}

static int put_attributes(Buffer *out, PyObject *attributes)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int done = DONE;
    while (done == DONE && PyDict_Next(attributes, &at, &key, &value)) /* nothing in here runs Python */
        done = put_attribute(out, 0x4A, key, value, put_list);
    return done;
}

/* A field of eight bytes; None is left out, as is 0. */
static int put_time(Buffer *out, char tag, PyObject *time)
{
    if (time == Py_None)
        return DONE;
    unsigned long long number = PyLong_CheckExact(time) ? PyLong_AsUnsignedLongLong(time) : (unsigned long long)-1;
    if (number == (unsigned long long)-1) {
        PyErr_Clear();
        return ODD;
    }
    char bytes[9] = {tag};
    for (int place = 1; place < 9; place++, number >>= 8)
        bytes[place] = (char)number;
    return put(out, bytes, sizeof bytes);
}

static int put_small(Buffer *out, char tag, PyObject *number, char more)
{
    long value = PyLong_CheckExact(number) ? PyLong_AsLong(number) : -1;
    PyErr_Clear();
    char bytes[2] = {tag, (char)(value + more)};
    return value < 0 || value > 0x70 ? ODD : put(out, bytes, sizeof bytes);
}

static int put_status(Buffer *out, PyObject *code, PyObject *message)
{
    Buffer status;
    size_t size = 0;
    const char *text = message == Py_None ? "" : text_at(message, &size);
    begin(&status);
    int done = text == NULL ? ODD : put_small(&status, 0x18, code, 0);
    if (done == DONE && size > 0)
        done = put_sized(&status, 0x12, text, size);
    if (done == DONE)
        done = put_sized(out, 0x7A, status.at, status.size);
    end(&status);
    return done;
}

static int put_text(Buffer *out, char tag, PyObject *text)
{
    size_t size;
    const char *at = text_at(text, &size);
    return at == NULL ? ODD : put_sized(out, tag, at, size);
}

/* A mapping that PyDict_Next walks: older SDKs, and those with limits, keep attributes in an OrderedDict. */
static int is_walkable(PyObject *attributes)
{
    return PyDict_CheckExact(attributes) || PyODict_CheckExact(attributes);
}

/* name, kind as the SDK counts, start, end, code, message, attributes, events */
static int put_span(Buffer *out, PyObject *const *given)
{
    int done = is_walkable(given[6]) ? put_text(out, 0x2A, given[0]) : ODD;
    if (done == DONE)
        done = put_small(out, 0x30, given[1], 1);
    if (done == DONE)
        done = put_time(out, 0x39, given[2]);
    if (done == DONE)
        done = put_time(out, 0x41, given[3]);
    if (done == DONE)
        done = put_status(out, given[4], given[5]);
    if (done == DONE)
        done = put_attributes(out, given[6]);
    int events = done == DONE ? PyObject_IsTrue(given[7]) : 0;
    return events < 0 ? FAILED : events > 0 ? put(out, "\x5A", 2) : done; /* one without a word: the view has them */
}

static PyObject *recorded(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 9) {
        PyErr_SetString(PyExc_TypeError, "recorded(name, kind, start, end, code, message, attributes, events, view)");
        return NULL;
    }
    Buffer span;
    begin(&span);
    int done = put_span(&span, given);
    PyObject *payload = done == DONE ? PyBytes_FromStringAndSize(span.at, (Py_ssize_t)span.size) : NULL;
    end(&span);
    if (done == FAILED || (done == DONE && payload == NULL))
        return NULL;
    PyObject *view = done == DONE ? view_of(payload, given[8]) : Py_NewRef(given[8]);
    Py_XDECREF(payload);
    return view;
}
