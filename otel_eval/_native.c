/* Reading spans in OTLP's protobuf bytes, the way nearly every encoder writes them.
 *
 * Knows: where a span keeps its ids, name, kind, times, status and attributes; the four plain kinds of value; how a
 * request nests. Refuses to know: anything unusual. A field that OTLP does not have, one of another wire type, a key or
 * a value said twice, a number longer than it need be: then nothing is guessed and the Python decoder, whose answer
 * counts, is asked instead. So both ways give equal results, and this one is only ever a shortcut.
 *
 * Hostile bytes: every read is bounds-checked, nothing recurses, nothing is allocated by a length that the bytes
 * themselves do not back. Holds no reference across calls but to the Python functions it was given and to at most
 * SLOTS sets of wanted keys. Needs the interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *Bytes;

typedef struct {
    Bytes at;
    Bytes end;
} Range;

/* What one walk along a span's fields finds; ranges that are absent have at == NULL. */
typedef struct {
    Range trace_id, span_id, parent_id, name, status;
    Range attributes; /* from the first attribute's tag to behind the last attribute; nothing else lies between */
    uint64_t start, end;
    int kind;
    int has_events;
} Head;

static PyObject *pure_view, *pure_decode, *decode_error;
static PyObject *str_attributes, *str_events, *str_status_code, *str_status_message, *str_raw_keys, *str_raw_prefixes;

/* ------------------------------------------------------------------ the wire */

/* A length and the bytes it counts, within `in`; 0 if there are fewer, or the length takes more than four bytes. */
static int take(Range *in, Range *out)
{
    size_t size = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        if (in->at == in->end)
            return 0;
        unsigned char byte = *in->at++;
        size |= (size_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            if ((size_t)(in->end - in->at) < size)
                return 0;
            out->at = in->at;
            out->end = in->at += size;
            return 1;
        }
    }
    return 0;
}

static int take_varint(Range *in, uint64_t *out)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (in->at == in->end)
            return 0;
        unsigned char byte = *in->at++;
        if (shift == 63 && byte > 1)
            return 0;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = number;
            return 1;
        }
    }
    return 0;
}

static int take_fixed64(Range *in, uint64_t *out)
{
    if (in->end - in->at < 8)
        return 0;
    uint64_t number = 0;
    for (int place = 7; place >= 0; place--)
        number = number << 8 | in->at[place];
    in->at += 8;
    *out = number;
    return 1;
}

static int take_small(Range *in, int *out)
{
    if (in->at == in->end || *in->at > 0x7F)
        return 0;
    *out = *in->at++;
    return 1;
}

/* Attributes must follow one another, so that reading them later is one loop. */
static int take_attribute(Range *in, Bytes tag, Range *attributes)
{
    Range pair;
    if (attributes->at == NULL)
        attributes->at = tag;
    else if (attributes->end != tag)
        return 0;
    if (!take(in, &pair))
        return 0;
    attributes->end = in->at;
    return 1;
}

static int take_flags(Range *in)
{
    if (in->end - in->at < 5 || *in->at != 0x01)
        return 0;
    in->at += 5;
    return 1;
}

static int walk_span(Range in, Head *head)
{
    Range skipped;
    uint64_t number;
    memset(head, 0, sizeof *head);
    while (in.at < in.end) {
        Bytes tag = in.at++;
        int known = 0;
        switch (*tag) {
        case 0x0A: known = take(&in, &head->trace_id); break;
        case 0x12: known = take(&in, &head->span_id); break;
        case 0x22: known = take(&in, &head->parent_id); break;
        case 0x2A: known = take(&in, &head->name); break;
        case 0x30: known = take_small(&in, &head->kind); break;
        case 0x39: known = take_fixed64(&in, &head->start); break;
        case 0x41: known = take_fixed64(&in, &head->end); break;
        case 0x4A: known = take_attribute(&in, tag, &head->attributes); break;
        case 0x5A: known = take(&in, &skipped); head->has_events = 1; break;
        case 0x1A: /* trace state */
        case 0x6A: known = take(&in, &skipped); break; /* a link */
        case 0x7A: known = head->status.at == NULL && take(&in, &head->status); break;
        case 0x50: /* dropped attributes, events, links */
        case 0x60:
        case 0x70: known = take_varint(&in, &number) && number <= UINT32_MAX; break;
        case 0x85: known = take_flags(&in); break;
        default: break;
        }
        if (!known)
            return 0;
    }
    return 1;
}

static PyObject *text_of(Range from)
{
    if (from.at == NULL)
        return PyUnicode_New(0, 0);
    return PyUnicode_DecodeUTF8((const char *)from.at, from.end - from.at, "replace");
}

static PyObject *bytes_of(Range from)
{
    return PyBytes_FromStringAndSize((const char *)from.at, from.at == NULL ? 0 : from.end - from.at);
}

/* ------------------------------------------------- sets of wanted keys */

typedef struct {
    char *at; /* owned by `key_bytes` */
    Py_ssize_t size;
    PyObject *key_bytes, *key_text;
} Key;

/* One `Wanted`, made fit for look-ups: an open hash over its keys, and its prefixes. */
typedef struct {
    PyObject *wanted; /* a strong reference, so that its address means it alone */
    Key *table;
    size_t mask;
    PyObject *prefixes; /* a tuple of bytes */
    int holders;        /* its slot, and every walk that uses it: Python may run during one and fill the slot anew */
} Lookup;

#define SLOTS 256
static Lookup *lookups[SLOTS];

/* Keys of one family begin alike, so their length and their last bytes tell them apart. */
static size_t hash_of(const char *at, Py_ssize_t size)
{
    uint64_t tail = 0;
    memcpy(&tail, size > 8 ? at + size - 8 : at, size > 8 ? 8 : (size_t)size);
    return (size_t)(((tail ^ (uint64_t)size) * 0x9E3779B97F4A7C15ull) >> 40);
}

static void let_go(Lookup *lookup)
{
    if (lookup == NULL || --lookup->holders > 0)
        return;
    for (size_t place = 0; lookup->table != NULL && place <= lookup->mask; place++) {
        Py_XDECREF(lookup->table[place].key_bytes);
        Py_XDECREF(lookup->table[place].key_text);
    }
    PyMem_Free(lookup->table);
    Py_XDECREF(lookup->prefixes);
    Py_XDECREF(lookup->wanted);
    PyMem_Free(lookup);
}

static int add_key(Lookup *lookup, PyObject *key)
{
    char *at;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(key, &at, &size) < 0)
        return -1;
    PyObject *as_text = PyUnicode_DecodeUTF8(at, size, "replace");
    if (as_text == NULL)
        return -1;
    PyUnicode_InternInPlace(&as_text);
    size_t place = hash_of(at, size) & lookup->mask;
    while (lookup->table[place].at != NULL)
        place = (place + 1) & lookup->mask;
    lookup->table[place] = (Key){at, size, Py_NewRef(key), as_text};
    return 0;
}

static int fill(Lookup *lookup, PyObject *keys)
{
    Py_ssize_t count = PyObject_Size(keys);
    if (count < 0)
        return -1;
    size_t room = 8;
    while (room < (size_t)count * 4) /* mostly empty: most attributes are not wanted */
        room *= 2;
    lookup->table = PyMem_Calloc(room, sizeof(Key));
    if (lookup->table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    lookup->mask = room - 1;
    PyObject *each, *iterator = PyObject_GetIter(keys);
    if (iterator == NULL)
        return -1;
    int failed = 0;
    while (!failed && (each = PyIter_Next(iterator)) != NULL) {
        failed = add_key(lookup, each) < 0;
        Py_DECREF(each);
    }
    Py_DECREF(iterator);
    return failed || PyErr_Occurred() ? -1 : 0;
}

static Lookup *new_lookup(PyObject *wanted)
{
    Lookup *lookup = PyMem_Calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return (Lookup *)PyErr_NoMemory();
    lookup->holders = 1;
    lookup->wanted = Py_NewRef(wanted);
    lookup->prefixes = PyObject_GetAttr(wanted, str_raw_prefixes);
    PyObject *keys = lookup->prefixes == NULL ? NULL : PyObject_GetAttr(wanted, str_raw_keys);
    int failed = keys == NULL || fill(lookup, keys) < 0;
    if (!failed && !PyTuple_Check(lookup->prefixes)) {
        PyErr_SetString(PyExc_TypeError, "raw_prefixes must be a tuple");
        failed = 1;
    }
    Py_XDECREF(keys);
    if (!failed)
        return lookup;
    let_go(lookup);
    return NULL;
}

/* What the wanted keys are looked up in; the caller lets go of it. */
static Lookup *lookup_of(PyObject *wanted)
{
    Lookup **slot = &lookups[((uintptr_t)wanted >> 4) % SLOTS];
    if (*slot == NULL || (*slot)->wanted != wanted) {
        Lookup *fresh = new_lookup(wanted);
        if (fresh == NULL)
            return NULL;
        Lookup *old = *slot;
        *slot = fresh;
        let_go(old);
    }
    (*slot)->holders++;
    return *slot;
}

static Key *find_key(const Lookup *lookup, Range key)
{
    Py_ssize_t size = key.end - key.at;
    size_t place = hash_of((const char *)key.at, size) & lookup->mask;
    for (Key *held; (held = &lookup->table[place])->at != NULL; place = (place + 1) & lookup->mask)
        if (held->size == size && memcmp(held->at, key.at, (size_t)size) == 0)
            return held;
    return NULL;
}

static int has_prefix(const Lookup *lookup, Range key)
{
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(lookup->prefixes); number++) {
        char *at;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GET_ITEM(lookup->prefixes, number), &at, &size) < 0)
            return -1;
        if (size <= key.end - key.at && memcmp(at, key.at, (size_t)size) == 0)
            return 1;
    }
    return 0;
}

/* --------------------------------------------------------------- attributes */

enum { FAILED = -1, ODD = 0, DONE = 1 };

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

/* DONE with *out == NULL: the value is one that nobody can read. */
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
    done = done < 0 ? FAILED : done ? ODD : decode_value(value, &decoded); /* said twice: Python knows who wins */
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

/* --------------------------------------------------------------------- View */

typedef struct {
    PyObject_HEAD
    PyObject *payload; /* bytes, into which the head's ranges point */
    PyObject *pure;    /* the Python view of the same span, once somebody needed it */
    Head head;
} View;

static PyTypeObject *view_type;

static void view_dealloc(PyObject *object)
{
    View *self = (View *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->payload);
    Py_XDECREF(self->pure);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *pure_of(View *self)
{
    if (self->pure == NULL) {
        PyObject *pure = PyObject_CallOneArg(pure_view, self->payload);
        Py_XSETREF(self->pure, pure); /* another thread may have been faster */
    }
    return self->pure;
}

static PyObject *ask_pure(View *self, PyObject *name)
{
    PyObject *pure = pure_of(self);
    return pure == NULL ? NULL : PyObject_GetAttr(pure, name);
}

static PyObject *view_name(PyObject *self, void *Py_UNUSED(unused))
{
    return text_of(((View *)self)->head.name);
}

static PyObject *view_kind(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromLong(((View *)self)->head.kind);
}

static PyObject *view_start(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((View *)self)->head.start);
}

static PyObject *view_end(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((View *)self)->head.end);
}

static int read_status(Range in, int *code, Range *message)
{
    *code = 0;
    *message = (Range){NULL, NULL};
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if (tag == 0x12 ? !take(&in, message) : tag != 0x18 || !take_small(&in, code))
            return 0;
    }
    return 1;
}

static PyObject *view_status_code(PyObject *object, void *Py_UNUSED(unused))
{
    View *self = (View *)object;
    int code;
    Range message;
    if (!read_status(self->head.status, &code, &message))
        return ask_pure(self, str_status_code);
    return PyLong_FromLong(code);
}

static PyObject *view_status_message(PyObject *object, void *Py_UNUSED(unused))
{
    View *self = (View *)object;
    int code;
    Range message;
    if (!read_status(self->head.status, &code, &message))
        return ask_pure(self, str_status_message);
    return text_of(message);
}

static PyObject *view_attributes(PyObject *object, PyObject *wanted)
{
    View *self = (View *)object;
    PyObject *found = PyDict_New();
    Lookup *lookup = found == NULL ? NULL : lookup_of(wanted);
    int done = lookup == NULL ? FAILED : read_attributes(self->head.attributes, lookup, found);
    let_go(lookup);
    if (done == DONE)
        return found;
    Py_XDECREF(found);
    if (done == FAILED)
        return NULL;
    PyObject *pure = pure_of(self);
    return pure == NULL ? NULL : PyObject_CallMethodOneArg(pure, str_attributes, wanted);
}

/* Of how many wanted attributes a fingerprint is made at most; more of them are no shortcut. */
#define MARKS 16

/* Add a pair's bytes to the ranges, unless its key is there already: then Python must decide which one counts. */
static int mark(const Lookup *lookup, Range key, Range pair, Range *marks, Key **seen, int *count)
{
    Key *held = find_key(lookup, key);
    if (held == NULL)
        return 1;
    for (int number = 0; number < *count; number++)
        if (seen[number] == held)
            return 0;
    if (*count == MARKS)
        return 0;
    seen[*count] = held;
    marks[(*count)++] = pair;
    return 1;
}

static PyObject *join(const Range *ranges, int count)
{
    Py_ssize_t size = 0;
    for (int number = 0; number < count; number++)
        size += ranges[number].end - ranges[number].at;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    if (joined == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(joined);
    for (int number = 0; number < count; number++) {
        size = ranges[number].end - ranges[number].at;
        memcpy(to, ranges[number].at, (size_t)size);
        to += size;
    }
    return joined;
}

static PyObject *view_fingerprint(PyObject *object, PyObject *wanted)
{
    Lookup *lookup = lookup_of(wanted);
    if (lookup == NULL)
        return NULL;
    Range in = ((View *)object)->head.attributes, key, value, marks[MARKS];
    Key *seen[MARKS];
    int count = 0, plain = PyTuple_GET_SIZE(lookup->prefixes) == 0;
    while (plain && in.at < in.end) {
        Bytes start = in.at;
        plain = take_pair(&in, &key, &value) && mark(lookup, key, (Range){start, in.at}, marks, seen, &count);
    }
    PyObject *made = plain ? join(marks, count) : Py_NewRef(Py_None);
    let_go(lookup);
    return made;
}

/* Whether the bytes hold the word. */
static int holds(Range in, Range word)
{
    size_t size = (size_t)(word.end - word.at);
    while (size > 0 && (size_t)(in.end - in.at) >= size) {
        in.at = memchr(in.at, *word.at, (size_t)(in.end - in.at) - size + 1);
        if (in.at == NULL)
            return 0;
        if (memcmp(in.at, word.at, size) == 0)
            return 1;
        in.at++;
    }
    return 0;
}

/* Whether the value is a text that holds none of the words. */
static int is_harmless(Range value, PyObject *words)
{
    Range content;
    if (value.at == value.end || *value.at++ != 0x0A || !take(&value, &content) || value.at != value.end)
        return 0;
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(words); number++) {
        PyObject *word = PyTuple_GET_ITEM(words, number);
        Bytes at = (Bytes)PyBytes_AS_STRING(word);
        if (holds(content, (Range){at, at + PyBytes_GET_SIZE(word)}))
            return 0;
    }
    return 1;
}

/* What one walk along a tool span's attributes finds. */
typedef struct {
    Lookup *said, *id, *result;
    PyObject *words;
    Range marks[MARKS], call_id;
    Key *seen[MARKS];
    int count;
} Call;

static int walk_call(Range in, Call *call)
{
    Range key, value;
    while (in.at < in.end) {
        Bytes start = in.at;
        if (!take_pair(&in, &key, &value) || !mark(call->said, key, (Range){start, in.at}, call->marks, call->seen, &call->count))
            return 0;
        if (find_key(call->result, key) != NULL && !is_harmless(value, call->words))
            return 0;
        if (find_key(call->id, key) == NULL)
            continue;
        if (call->call_id.at != NULL || value.at == value.end || *value.at++ != 0x0A)
            return 0;
        if (!take(&value, &call->call_id) || value.at != value.end)
            return 0;
    }
    return 1;
}

static int did_not_fail(Range status)
{
    int code;
    Range message;
    return read_status(status, &code, &message) && code != 2;
}

static int are_words(PyObject *words)
{
    for (Py_ssize_t number = 0; PyTuple_CheckExact(words) && number < PyTuple_GET_SIZE(words); number++)
        if (!PyBytes_CheckExact(PyTuple_GET_ITEM(words, number)))
            return 0;
    return PyTuple_CheckExact(words);
}

static PyObject *call_of(const View *self, Call *call)
{
    if (!did_not_fail(self->head.status) || !walk_call(self->head.attributes, call))
        Py_RETURN_NONE;
    PyObject *made = NULL, *joined = join(call->marks, call->count), *id = text_of(call->call_id);
    if (joined != NULL && id != NULL)
        made = PyTuple_Pack(2, joined, id);
    Py_XDECREF(joined);
    Py_XDECREF(id);
    return made;
}

static PyObject *view_call(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !are_words(given[3])) {
        PyErr_SetString(PyExc_TypeError, "call(said, id, result, words: tuple of bytes)");
        return NULL;
    }
    Call call = {.words = given[3]};
    PyObject *made = NULL;
    call.said = lookup_of(given[0]);
    call.id = call.said == NULL ? NULL : lookup_of(given[1]);
    call.result = call.id == NULL ? NULL : lookup_of(given[2]);
    if (call.result != NULL)
        made = call_of((View *)object, &call);
    let_go(call.said);
    let_go(call.id);
    let_go(call.result);
    return made;
}

static PyObject *view_events(PyObject *object, PyObject *Py_UNUSED(unused))
{
    View *self = (View *)object;
    if (!self->head.has_events)
        return PyList_New(0);
    PyObject *pure = pure_of(self);
    return pure == NULL ? NULL : PyObject_CallMethodNoArgs(pure, str_events);
}

static PyMethodDef view_methods[] = {
    {"attributes", view_attributes, METH_O, "The wanted attributes that the span has."},
    {"fingerprint", view_fingerprint, METH_O, "Bytes that are equal only where `attributes` gives equals; None if unusual."},
    {"call", (PyCFunction)(void (*)(void))view_call, METH_FASTCALL,
     "call(said, id, result, words): (fingerprint of `said`, call id) of a span that did not fail, has at most one id and no\n"
     "result but texts without any of the words; None of any other."},
    {"events", view_events, METH_NOARGS, "The events in the order of the span."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef view_getters[] = {
    {"name", view_name, NULL, "The span's name.", NULL},
    {"span_kind", view_kind, NULL, "OTLP's number of the kind.", NULL},
    {"start_ns", view_start, NULL, "Unix nanoseconds.", NULL},
    {"end_ns", view_end, NULL, "Unix nanoseconds.", NULL},
    {"status_code", view_status_code, NULL, "0 unset, 1 ok, 2 error.", NULL},
    {"status_message", view_status_message, NULL, "What the status says, or \"\".", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_getters},
    {Py_tp_doc, "One span, readable; made by `view`."},
    {0, NULL},
};

static PyType_Spec view_spec = {
    .name = "otel_eval._native.View",
    .basicsize = sizeof(View),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};

static PyObject *make_view(PyObject *Py_UNUSED(module), PyObject *payload)
{
    Head head;
    if (pure_view == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
        return NULL;
    }
    if (!PyBytes_CheckExact(payload))
        return PyObject_CallOneArg(pure_view, payload);
    Bytes at = (Bytes)PyBytes_AS_STRING(payload);
    if (!walk_span((Range){at, at + PyBytes_GET_SIZE(payload)}, &head))
        return PyObject_CallOneArg(pure_view, payload);
    View *self = PyObject_New(View, view_type);
    if (self == NULL)
        return NULL;
    self->payload = Py_NewRef(payload);
    self->pure = NULL;
    self->head = head;
    return (PyObject *)self;
}

/* ------------------------------------------------------------------ framing */

static int is_id(Range id, Py_ssize_t size)
{
    static const unsigned char nothing[16];
    return id.at != NULL && id.end - id.at == size && memcmp(id.at, nothing, (size_t)size) != 0;
}

/* Ids said before in the same request: spans of few traces and with few parents come together, and an object that is
 * shared costs no memory, and its hash is known. */
#define RECENT 64
typedef struct {
    PyObject *each[RECENT];
} Recent;

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

static int add_span(PyObject *spans, Range payload, PyObject *envelope, Recent *recent)
{
    Head head;
    if (!walk_span(payload, &head) || !is_id(head.trace_id, 16) || !is_id(head.span_id, 8))
        return ODD;
    int is_top = head.parent_id.at == head.parent_id.end;
    if (!is_top && !is_id(head.parent_id, 8))
        return ODD;
    Py_ssize_t size = payload.end - payload.at;
    PyObject *trace_id = id_of(recent, head.trace_id), *span_id = bytes_of(head.span_id);
    PyObject *parent = is_top ? bytes_of((Range){NULL, NULL}) : id_of(recent, head.parent_id), *content = bytes_of(payload);
    PyObject *length = PyLong_FromSsize_t(size), *frame = NULL, *item = NULL;
    if (parent != NULL && content != NULL)
        frame = PyTuple_Pack(3, parent, content, envelope);
    if (frame != NULL)
        PyObject_GC_UnTrack(frame); /* an envelope never leads back to a frame: no cycle, so nothing to look for */
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

static PyObject *envelope_of(PyObject *make, Range resource, Range scope)
{
    PyObject *envelope = NULL, *first = bytes_of(resource), *second = bytes_of(scope);
    if (first != NULL && second != NULL)
        envelope = PyObject_CallFunctionObjArgs(make, first, second, NULL);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return envelope;
}

static int add_members(PyObject *spans, Range in, PyObject *envelope, Recent *recent)
{
    Range each;
    while (in.at < in.end) {
        unsigned char tag = *in.at++;
        if ((tag != 0x12 && tag != 0x1A) || !take(&in, &each)) /* a span, or the schema's address */
            return ODD;
        int done = tag == 0x12 ? add_span(spans, each, envelope, recent) : DONE;
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
    PyObject *envelope = envelope_of(make, resource, scope);
    PyObject *spans = envelope == NULL ? NULL : PyList_New(0);
    int done = spans == NULL ? FAILED : add_members(spans, in, envelope, recent);
    if (done == DONE) {
        PyObject *item = PyTuple_Pack(2, envelope, spans);
        if (item == NULL || PyList_Append(found, item) < 0)
            done = FAILED;
        Py_XDECREF(item);
    }
    Py_XDECREF(spans);
    Py_XDECREF(envelope);
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
    if (count != 2 || !PyBytes_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "frame(body: bytes, envelope)");
        return NULL;
    }
    Bytes at = (Bytes)PyBytes_AS_STRING(given[0]);
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    Recent recent = {{NULL}};
    int done = add_groups(found, given[1], (Range){at, at + PyBytes_GET_SIZE(given[0])}, &recent);
    forget(&recent);
    if (done == DONE)
        return found;
    Py_DECREF(found);
    if (done == FAILED)
        return NULL;
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ cutting */

static int add_range(PyObject *list, Bytes base, Bytes start, Bytes stop)
{
    PyObject *item = Py_BuildValue("(nn)", (Py_ssize_t)(start - base), (Py_ssize_t)(stop - base));
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? FAILED : DONE;
}

/* The next of the wanted spans, or an empty range that no span is equal to. */
static Range next_wanted(PyObject *wanted, Py_ssize_t number)
{
    PyObject *each = number < PyList_GET_SIZE(wanted) ? PyList_GET_ITEM(wanted, number) : NULL;
    if (each == NULL || !PyBytes_CheckExact(each))
        return (Range){NULL, NULL};
    Bytes at = (Bytes)PyBytes_AS_STRING(each);
    return (Range){at, at + PyBytes_GET_SIZE(each)};
}

/* Where the wanted spans stand among a scope's fields, and what stands there that is no span; ODD if it is unusual. */
static int part(Bytes base, Range in, PyObject *wanted, PyObject *found, PyObject *others, Py_ssize_t *spans)
{
    Range each, next = next_wanted(wanted, 0);
    while (in.at < in.end) {
        Bytes start = in.at;
        unsigned char tag = *in.at++;
        if ((tag != 0x0A && tag != 0x12 && tag != 0x1A) || !take(&in, &each)) /* the scope, a span, the schema's address */
            return ODD;
        int done = DONE;
        if (tag != 0x12) {
            done = add_range(others, base, start, in.at);
        } else if (next.at != NULL && each.end - each.at == next.end - next.at &&
                   memcmp(each.at, next.at, (size_t)(each.end - each.at)) == 0) {
            done = add_range(found, base, start, in.at);
            next = next_wanted(wanted, PyList_GET_SIZE(found));
        }
        *spans += tag == 0x12;
        if (done != DONE)
            return done;
    }
    return DONE;
}

static PyObject *find_spans(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body, *wanted, *told = NULL;
    Py_ssize_t start, stop, spans = 0;
    if (!PyArg_ParseTuple(args, "SnnO!:find_spans", &body, &start, &stop, &PyList_Type, &wanted))
        return NULL;
    if (start < 0 || stop < start || stop > PyBytes_GET_SIZE(body)) {
        PyErr_SetString(PyExc_ValueError, "the range is not within the body");
        return NULL;
    }
    Bytes base = (Bytes)PyBytes_AS_STRING(body);
    PyObject *found = PyList_New(0), *others = PyList_New(0);
    int done = FAILED;
    if (found != NULL && others != NULL)
        done = part(base, (Range){base + start, base + stop}, wanted, found, others, &spans);
    if (done == DONE)
        told = Py_BuildValue("(OOn)", found, others, spans);
    else if (done == ODD)
        told = Py_NewRef(Py_None);
    Py_XDECREF(found);
    Py_XDECREF(others);
    return told;
}

/* ------------------------------------------------------------------- module */

static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "configure(view, decode, error)");
        return NULL;
    }
    Py_XSETREF(pure_view, Py_NewRef(given[0]));
    Py_XSETREF(pure_decode, Py_NewRef(given[1]));
    Py_XSETREF(decode_error, Py_NewRef(given[2]));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_FASTCALL,
     "configure(view, decode, error): what to ask about anything unusual."},
    {"view", make_view, METH_O, "view(payload): the span, readable."},
    {"frame", (PyCFunction)(void (*)(void))frame, METH_FASTCALL,
     "frame(body, envelope): (envelope, spans) of each scope, or None if the body is unusual."},
    {"find_spans", find_spans, METH_VARARGS,
     "find_spans(body, start, stop, wanted): (ranges of the wanted spans among a scope's fields, ranges of what is no span,\n"
     "number of spans), or None if a field is unusual."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._native",
    .m_doc = "A shortcut for reading spans in OTLP's protobuf bytes.",
    .m_size = -1,
    .m_methods = functions,
};

static int intern_names(void)
{
    struct {
        PyObject **held;
        const char *name;
    } names[] = {
        {&str_attributes, "attributes"},   {&str_events, "events"},
        {&str_status_code, "status_code"}, {&str_status_message, "status_message"},
        {&str_raw_keys, "raw_keys"},       {&str_raw_prefixes, "raw_prefixes"},
    };
    for (size_t number = 0; number < sizeof names / sizeof *names; number++)
        if ((*names[number].held = PyUnicode_InternFromString(names[number].name)) == NULL)
            return -1;
    return 0;
}

PyMODINIT_FUNC PyInit__native(void)
{
    if (intern_names() < 0)
        return NULL;
    view_type = (PyTypeObject *)PyType_FromSpec(&view_spec);
    return view_type == NULL ? NULL : PyModule_Create(&definition);
}
