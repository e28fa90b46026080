/* A request of spans, taken apart.
 *
 * Anything unusual in it is left to Python.
 */

static int is_id(Range id, Py_ssize_t size)
{
    static const unsigned char nothing[16];
    return id.at != NULL && id.end - id.at == size && memcmp(id.at, nothing, (size_t)size) != 0;
}

/* Ids that occurred before in the same request: spans of few traces and with few parents come together, and an object that is
 * shared costs no memory, and its hash is known. */
#define RECENT 64
typedef struct {
    PyObject *each[RECENT];
    Py_ssize_t most; /* attributes that a span, an event or a link may have; and events and links that a span may have */
} Recent;

/* A field of any number and kind, skipped; 0 if it cannot be. */
static int skip_field(Range *in, uint64_t *tag, Range *content)
{
    uint64_t number;
    if (!take_varint(in, tag))
        return 0;
    switch (*tag & 7) {
    case 0: return take_varint(in, &number);
    case 1: return take_fixed64(in, &number);
    case 2: return take(in, content);
    case 5: return in->end - in->at >= 4 && (in->at += 4, 1);
    default: return 0;
    }
}

/* Whether the fields of that tag are more than so many; what cannot be read may be. */
static int has_many(Range in, uint64_t wanted, Py_ssize_t most)
{
    uint64_t tag;
    Range skipped;
    Py_ssize_t count = 0;
    if ((in.end - in.at) / 2 <= most) /* each takes two bytes at the least */
        return 0;
    while (in.at < in.end) {
        if (!skip_field(&in, &tag, &skipped))
            return 1;
        count += tag == wanted;
    }
    return count > most;
}

/* Whether a span has too many attributes, events or links, or one of these has too many attributes; or may have. */
static int is_crowded(Range span, Py_ssize_t most)
{
    uint64_t tag;
    Range each, in = span;
    while (in.at < in.end) {
        if (!skip_field(&in, &tag, &each) || (tag == 0x5A && has_many(each, 0x1A, most)) ||
            (tag == 0x6A && has_many(each, 0x22, most)))
            return 1;
    }
    return has_many(span, 0x4A, most) || has_many(span, 0x5A, most) || has_many(span, 0x6A, most);
}

static void forget(Recent *recent)
{
    for (int place = 0; place < RECENT; place++)
        Py_CLEAR(recent->each[place]);
}

static PyObject *id_of(Recent *recent, Range id)
{
    size_t size = (size_t)(id.end - id.at);
    PyObject **place = &recent->each[(id.at[size - 1] ^ id.at[size - 2]) % RECENT];
    if (*place == NULL || (size_t)PyBytes_GET_SIZE(*place) != size || memcmp(PyBytes_AS_STRING(*place), id.at, size) != 0) {
        PyObject *made = bytes_of(id);
        if (made == NULL)
            return NULL;
        Py_XSETREF(*place, made);
    }
    return Py_NewRef(*place);
}

static int add_span(PyObject *spans, Range payload, PyObject *resource_scope, Recent *recent)
{
    Head head;
    if (!walk_span(payload, &head) || !is_id(head.trace_id, 16) || !is_id(head.span_id, 8))
        return ODD;
    if ((payload.end - payload.at) / 2 > recent->most && is_crowded(payload, recent->most))
        return ODD;
    int is_top = head.parent_id.at == head.parent_id.end;
    if (!is_top && !is_id(head.parent_id, 8))
        return ODD;
    Py_ssize_t size = payload.end - payload.at;
    PyObject *trace_id = id_of(recent, head.trace_id), *span_id = bytes_of(head.span_id);
    PyObject *parent = is_top ? bytes_of((Range){NULL, NULL}) : id_of(recent, head.parent_id), *content = bytes_of(payload);
    PyObject *length = PyLong_FromSsize_t(size), *frame = NULL, *item = NULL;
    if (parent != NULL && content != NULL)
        frame = PyTuple_Pack(3, parent, content, resource_scope);
    if (frame != NULL)
        PyObject_GC_UnTrack(frame); /* a resource and scope never leads back to a frame: no cycle, so nothing to look for */
    if (trace_id != NULL && span_id != NULL && frame != NULL && length != NULL)
        item = PyTuple_Pack(4, trace_id, span_id, frame, length);
    int failed = item == NULL || PyList_Append(spans, item) < 0;
    Py_XDECREF(trace_id);
    Py_XDECREF(span_id);
    Py_XDECREF(parent);
    Py_XDECREF(content);
    Py_XDECREF(length);
    Py_XDECREF(frame);
    Py_XDECREF(item);
    return failed ? FAILED : DONE;
}

/* What stands at the head of a group or a scope, if anything, and nowhere else. */
static int take_head(Range *in, Range *head)
{
    *head = (Range){NULL, NULL};
    if (in->at == in->end || *in->at != 0x0A)
        return 1;
    in->at++;
    return take(in, head);
}

static PyObject *resource_scope_of(PyObject *make, Range resource, Range scope)
{
    PyObject *resource_scope = NULL, *first = bytes_of(resource), *second = bytes_of(scope);
    if (first != NULL && second != NULL)
        resource_scope = PyObject_CallFunctionObjArgs(make, first, second, NULL);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return resource_scope;
}

static int add_members(PyObject *spans, Range in, PyObject *resource_scope, Recent *recent)
{
    Range each;
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if ((tag != 0x12 && tag != 0x1A) || !take(&in, &each)) /* a span, or the schema's address */
            return ODD;
        int done = tag == 0x12 ? add_span(spans, each, resource_scope, recent) : DONE;
        if (done != DONE)
            return done;
    }
    return DONE;
}

static int add_scope(PyObject *found, PyObject *make, Range resource, Range in, Recent *recent)
{
    Range scope;
    if (!take_head(&in, &scope))
        return ODD;
    PyObject *resource_scope = resource_scope_of(make, resource, scope);
    PyObject *spans = resource_scope == NULL ? NULL : PyList_New(0);
    int done = spans == NULL ? FAILED : add_members(spans, in, resource_scope, recent);
    if (done == DONE) {
        PyObject *item = PyTuple_Pack(2, resource_scope, spans);
        if (item == NULL || PyList_Append(found, item) < 0)
            done = FAILED;
        Py_XDECREF(item);
    }
    Py_XDECREF(spans);
    Py_XDECREF(resource_scope);
    return done;
}

static int add_group(PyObject *found, PyObject *make, Range in, Recent *recent)
{
    Range resource, each;
    if (!take_head(&in, &resource))
        return ODD;
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if ((tag != 0x12 && tag != 0x1A) || !take(&in, &each))
            return ODD;
        int done = tag == 0x12 ? add_scope(found, make, resource, each, recent) : DONE;
        if (done != DONE)
            return done;
    }
    return DONE;
}

static int add_groups(PyObject *found, PyObject *make, Range in, Recent *recent)
{
    Range group;
    while (in.at < in.end) {
        if (*in.at++ != 0x0A || !take(&in, &group))
            return ODD;
        int done = add_group(found, make, group, recent);
        if (done != DONE)
            return done;
    }
    return DONE;
}

static PyObject *frame(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 3 || !PyBytes_CheckExact(given[0]) || !PyLong_CheckExact(given[2])) {
        PyErr_SetString(PyExc_TypeError, "frame(body: bytes, resource_scope, most: int)");
        return NULL;
    }
    Py_ssize_t most = PyLong_AsSsize_t(given[2]);
    if (most == -1 && PyErr_Occurred() != NULL)
        return NULL;
    Bytes at = (Bytes)PyBytes_AS_STRING(given[0]);
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    Recent recent = {{NULL}, most};
    int done = add_groups(found, given[1], (Range){at, at + PyBytes_GET_SIZE(given[0])}, &recent);
    forget(&recent);
    if (done == DONE)
        return found;
    Py_DECREF(found);
    if (done == FAILED)
        return NULL;
    Py_RETURN_NONE;
}
