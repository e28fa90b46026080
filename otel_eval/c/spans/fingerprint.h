/* What can be found out about a span without decoding it: a fingerprint of some attributes, and whether a call
 * surely did not fail.
 *
 * The caller passes the attributes and words that matter.
 */

/* Of how many wanted attributes a fingerprint is made at most; more of them are no shortcut. */
#define MARKS 16

/* Where `Wanted.short` is set, a text of more bytes is replaced by its key; the same number as `ports.LONG_TEXT`. */
#define LONG_TEXT 64

/* The bytes that stand for the attribute: its key alone where its text does not matter or is long, else the whole pair.
 * Its first byte tells the two apart. */
static Range stands_for(const Lookup *lookup, const Key *held, Range key, Range value, Range pair)
{
    Range content;
    int is_text = value.at < value.end && *value.at++ == 0x0A && take(&value, &content) && value.at == value.end;
    if (!is_text || content.at == content.end || key.at[-1] != key.end - key.at) /* the last: a length in one byte */
        return pair;
    return held->presence || (lookup->is_short && content.end - content.at > LONG_TEXT) ? (Range){key.at - 2, key.end} : pair;
}

/* Add what stands for a pair to the ranges, unless its key is there already: then Python must decide which one counts. */
static int mark(const Lookup *lookup, Range key, Range value, Range pair, Range *marks, Key **seen, int *count)
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
    marks[(*count)++] = stands_for(lookup, held, key, value, pair);
    return 1;
}

/* The marks as one; where the name belongs to them it comes last, after its tag, so that no attribute reads like a part of it. */
static PyObject *join(const Lookup *lookup, Range *ranges, int count, Range name)
{
    static const unsigned char tag = 0x2A;
    Py_ssize_t size = 0;
    if (lookup->is_named) {
        ranges[count++] = (Range){&tag, &tag + 1};
        if (name.at != NULL)
            ranges[count++] = name;
    }
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
    Range in = ((View *)object)->head.attributes, key, value, marks[MARKS + 2];
    Key *seen[MARKS];
    int count = 0, plain = PyTuple_GET_SIZE(lookup->prefixes) == 0;
    while (plain && in.at < in.end) {
        Bytes start = in.at;
        plain = take_pair(&in, &key, &value) && mark(lookup, key, value, (Range){start, in.at}, marks, seen, &count);
    }
    PyObject *made = plain ? join(lookup, marks, count, ((View *)object)->head.name) : Py_NewRef(Py_None);
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
    Range marks[MARKS + 2], call_id;
    Key *seen[MARKS];
    int count, has_result;
} Call;

static int walk_call(Range in, Call *call)
{
    Range key, value;
    while (in.at < in.end) {
        Bytes start = in.at;
        if (!take_pair(&in, &key, &value))
            return 0;
        if (!mark(call->said, key, value, (Range){start, in.at}, call->marks, call->seen, &call->count))
            return 0;
        if (find_key(call->result, key) != NULL) {
            if (!is_harmless(value, call->words))
                return 0;
            call->has_result |= value.end - value.at > 2; /* a text that is not empty */
        }
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
    PyObject *made = NULL, *joined = join(call->said, call->marks, call->count, self->head.name), *id = text_of(call->call_id);
    if (joined != NULL && id != NULL)
        made = PyTuple_Pack(3, joined, id, call->has_result ? Py_True : Py_False);
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
