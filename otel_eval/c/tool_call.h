/* Whether a tool span shows, without decoding it, that its call did not fail.
 *
 * The caller passes the attributes and words that matter. `conventions/tool_spans.py` asks for it
 * by name, where a reader has it.
 */

/* Whether the bytes contain the word. */
static int contains(Range in, Range word)
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

/* Whether the value is a text that contains none of the words. */
static int is_harmless(Range value, PyObject *words)
{
    Range content;
    if (value.at == value.end || *value.at++ != 0x0A || !take(&value, &content) ||
        value.at != value.end)
        return 0;
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(words); index++) {
        PyObject *word = PyTuple_GET_ITEM(words, index);
        Bytes at = (Bytes)PyBytes_AS_STRING(word);
        if (contains(content, (Range){at, at + PyBytes_GET_SIZE(word)}))
            return 0;
    }
    return 1;
}

/* What one walk along a tool span's attributes reads. */
typedef struct {
    Lookup *described_by, *id, *result;
    PyObject *words;
    Range ranges[MAX_FINGERPRINTED + 2], call_id;
    Key *seen[MAX_FINGERPRINTED];
    int count, has_result;
} Call;

static int walk_call(Range in, Call *call)
{
    Range key, value;
    while (in.at < in.end) {
        Bytes start = in.at;
        if (!take_pair(&in, &key, &value) ||
            !add_range(call->described_by, key, value, (Range){start, in.at}, call->ranges,
                       call->seen, &call->count))
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
    if (!PyTuple_CheckExact(words))
        return 0;
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(words); index++)
        if (!PyBytes_CheckExact(PyTuple_GET_ITEM(words, index)))
            return 0;
    return 1;
}

static PyObject *describe_call(const View *self, Call *call)
{
    if (!did_not_fail(self->head.status) || !walk_call(self->head.attributes, call))
        Py_RETURN_NONE;
    PyObject *described = NULL, *id = text_of(call->call_id);
    PyObject *fingerprint =
        join_ranges(call->described_by, call->ranges, call->count, self->head.name);
    if (fingerprint != NULL && id != NULL)
        described = PyTuple_Pack(3, fingerprint, id, call->has_result ? Py_True : Py_False);
    Py_XDECREF(fingerprint);
    Py_XDECREF(id);
    return described;
}

static PyObject *view_call(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4 || !are_words(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "call(described_by, id, result, words: tuple of bytes)");
        return NULL;
    }
    Call call = {.words = arguments[3]};
    PyObject *described = NULL;
    call.described_by = lookup_of(arguments[0]);
    call.id = call.described_by == NULL ? NULL : lookup_of(arguments[1]);
    call.result = call.id == NULL ? NULL : lookup_of(arguments[2]);
    if (call.result != NULL)
        described = describe_call((View *)object, &call);
    release_lookup(call.described_by);
    release_lookup(call.id);
    release_lookup(call.result);
    return described;
}
