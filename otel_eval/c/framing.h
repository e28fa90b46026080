/* A request of spans, taken apart.
 *
 * Anything unusual in it is left to Python.
 */

static int is_id(Range id, Py_ssize_t size)
{
    static const unsigned char nothing[16];
    return id.at != NULL && id.end - id.at == size && memcmp(id.at, nothing, (size_t)size) != 0;
}

/* Ids that occurred before in the same request: spans of few traces and with few parents come
 * together, and an object that is shared costs no memory, and its hash is known. */
#define RECENT 64
typedef struct {
    PyObject *ids[RECENT];
    Py_ssize_t max_attributes; /* attributes that a span, an event or a link may have; and events
                        and links that a span may have */
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
static int has_many(Range in, uint64_t counted_tag, Py_ssize_t max_attributes)
{
    uint64_t tag;
    Range skipped;
    Py_ssize_t count = 0;
    if ((in.end - in.at) / 2 <= max_attributes) /* each takes two bytes at the least */
        return 0;
    while (in.at < in.end) {
        if (!skip_field(&in, &tag, &skipped))
            return 1;
        count += tag == counted_tag;
    }
    return count > max_attributes;
}

/* Whether a span has too many attributes, events or links, or one of these has too many attributes;
 * or may have. */
static int is_crowded(Range span, Py_ssize_t max_attributes)
{
    uint64_t tag;
    Range item, in = span;
    while (in.at < in.end) {
        if (!skip_field(&in, &tag, &item) ||
            (tag == 0x5A && has_many(item, 0x1A, max_attributes)) ||
            (tag == 0x6A && has_many(item, 0x22, max_attributes)))
            return 1;
    }
    return has_many(span, 0x4A, max_attributes) || has_many(span, 0x5A, max_attributes) ||
           has_many(span, 0x6A, max_attributes);
}

static void clear_recent(Recent *recent)
{
    for (int slot = 0; slot < RECENT; slot++)
        Py_CLEAR(recent->ids[slot]);
}

static PyObject *id_of(Recent *recent, Range id)
{
    size_t size = (size_t)(id.end - id.at);
    PyObject **slot = &recent->ids[(id.at[size - 1] ^ id.at[size - 2]) % RECENT];
    if (*slot == NULL || (size_t)PyBytes_GET_SIZE(*slot) != size ||
        memcmp(PyBytes_AS_STRING(*slot), id.at, size) != 0) {
        PyObject *id_bytes = bytes_of(id);
        if (id_bytes == NULL)
            return NULL;
        Py_XSETREF(*slot, id_bytes);
    }
    return Py_NewRef(*slot);
}

static int add_span(PyObject *spans, Range payload, PyObject *resource_scope, Recent *recent)
{
    Head head;
    if (!walk_span(payload, &head) || !is_id(head.trace_id, 16) || !is_id(head.span_id, 8))
        return UNUSUAL;
    if ((payload.end - payload.at) / 2 > recent->max_attributes &&
        is_crowded(payload, recent->max_attributes))
        return UNUSUAL;
    int is_root = head.parent_id.at == head.parent_id.end;
    if (!is_root && !is_id(head.parent_id, 8))
        return UNUSUAL;
    Py_ssize_t size = payload.end - payload.at;
    PyObject *trace_id = id_of(recent, head.trace_id), *span_id = bytes_of(head.span_id);
    PyObject *parent = is_root ? bytes_of((Range){NULL, NULL}) : id_of(recent, head.parent_id),
             *content = bytes_of(payload);
    PyObject *length = PyLong_FromSsize_t(size), *frame = NULL, *item = NULL;
    if (parent != NULL && content != NULL)
        frame = PyTuple_Pack(3, parent, content, resource_scope);
    if (frame != NULL)
        PyObject_GC_UnTrack(frame); /* a resource and scope never leads back to a frame: no cycle,
                                       so nothing to look for */
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
    Range item;
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if ((tag != 0x12 && tag != 0x1A) || !take(&in, &item)) /* a span, or the schema's address */
            return UNUSUAL;
        int outcome = tag == 0x12 ? add_span(spans, item, resource_scope, recent) : DONE;
        if (outcome != DONE)
            return outcome;
    }
    return DONE;
}

static int add_scope(PyObject *scopes, PyObject *make, Range resource, Range in, Recent *recent)
{
    Range scope;
    if (!take_head(&in, &scope))
        return UNUSUAL;
    PyObject *resource_scope = resource_scope_of(make, resource, scope);
    PyObject *spans = resource_scope == NULL ? NULL : PyList_New(0);
    int outcome = spans == NULL ? FAILED : add_members(spans, in, resource_scope, recent);
    if (outcome == DONE) {
        PyObject *item = PyTuple_Pack(2, resource_scope, spans);
        if (item == NULL || PyList_Append(scopes, item) < 0)
            outcome = FAILED;
        Py_XDECREF(item);
    }
    Py_XDECREF(spans);
    Py_XDECREF(resource_scope);
    return outcome;
}

static int add_group(PyObject *scopes, PyObject *make, Range in, Recent *recent)
{
    Range resource, item;
    if (!take_head(&in, &resource))
        return UNUSUAL;
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if ((tag != 0x12 && tag != 0x1A) || !take(&in, &item))
            return UNUSUAL;
        int outcome = tag == 0x12 ? add_scope(scopes, make, resource, item, recent) : DONE;
        if (outcome != DONE)
            return outcome;
    }
    return DONE;
}

static int add_groups(PyObject *scopes, PyObject *make, Range in, Recent *recent)
{
    Range group;
    while (in.at < in.end) {
        if (*in.at++ != 0x0A || !take(&in, &group))
            return UNUSUAL;
        int outcome = add_group(scopes, make, group, recent);
        if (outcome != DONE)
            return outcome;
    }
    return DONE;
}

static PyObject *frame(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyBytes_CheckExact(args[0]) || !PyLong_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "frame(body: bytes, resource_scope, max_attributes: int)");
        return NULL;
    }
    Py_ssize_t max_attributes = PyLong_AsSsize_t(args[2]);
    if (max_attributes == -1 && PyErr_Occurred() != NULL)
        return NULL;
    Bytes at = (Bytes)PyBytes_AS_STRING(args[0]);
    PyObject *scopes = PyList_New(0);
    if (scopes == NULL)
        return NULL;
    Recent recent = {{NULL}, max_attributes};
    int outcome = add_groups(scopes, args[1], (Range){at, at + PyBytes_GET_SIZE(args[0])}, &recent);
    clear_recent(&recent);
    if (outcome == DONE)
        return scopes;
    Py_DECREF(scopes);
    if (outcome == FAILED)
        return NULL;
    Py_RETURN_NONE;
}
