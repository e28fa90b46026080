/* The fingerprint of a span: bytes that stand for some of its attributes, made without
 * decoding them.
 */

/* Of how many wanted attributes a fingerprint is made at most; more of them are no shortcut.
 */
#define MAX_FINGERPRINTED 16

/* Where `Wanted.short` is set, a text of more bytes is replaced by its key; the same number as
 * `interfaces.LONG_TEXT`. */
#define LONG_TEXT 64

/* The bytes that stand for the attribute: its key alone where its text does not matter or is long,
 * else the whole pair. Its first byte tells the two apart. */
static Range fingerprint_of_pair(const Lookup *lookup, const Key *entry, Range key, Range value,
                                 Range pair)
{
    Range content;
    int is_text = value.at < value.end && *value.at++ == 0x0A && take(&value, &content) &&
                  value.at == value.end;
    if (!is_text || content.at == content.end ||
        key.at[-1] != key.end - key.at) /* the last: a length in one byte */
        return pair;
    return entry->presence || (lookup->is_short && content.end - content.at > LONG_TEXT)
               ? (Range){key.at - 2, key.end}
               : pair;
}

/* Add what stands for a pair to the ranges, unless its key is there already: then Python must
 * decide which one counts. */
static int add_range(const Lookup *lookup, Range key, Range value, Range pair, Range *ranges,
                     Key **seen, int *count)
{
    Key *entry = find_key(lookup, key);
    if (entry == NULL)
        return 1;
    for (int index = 0; index < *count; index++)
        if (seen[index] == entry)
            return 0;
    if (*count == MAX_FINGERPRINTED)
        return 0;
    seen[*count] = entry;
    ranges[(*count)++] = fingerprint_of_pair(lookup, entry, key, value, pair);
    return 1;
}

/* The ranges as one bytes object; where the name belongs to them it comes last, after its tag, so
 * that no attribute reads like a part of it. */
static PyObject *join_ranges(const Lookup *lookup, Range *ranges, int count, Range name)
{
    static const unsigned char tag = 0x2A;
    Py_ssize_t size = 0;
    if (lookup->is_named) {
        ranges[count++] = (Range){&tag, &tag + 1};
        if (name.at != NULL)
            ranges[count++] = name;
    }
    for (int index = 0; index < count; index++)
        size += ranges[index].end - ranges[index].at;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size);
    if (joined == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(joined);
    for (int index = 0; index < count; index++) {
        size = ranges[index].end - ranges[index].at;
        memcpy(to, ranges[index].at, (size_t)size);
        to += size;
    }
    return joined;
}

static PyObject *view_fingerprint(PyObject *object, PyObject *wanted)
{
    Lookup *lookup = lookup_of(wanted);
    if (lookup == NULL)
        return NULL;
    Range in = ((View *)object)->head.attributes, key, value, ranges[MAX_FINGERPRINTED + 2];
    Key *seen[MAX_FINGERPRINTED];
    int count = 0, is_plain = PyTuple_GET_SIZE(lookup->prefixes) == 0;
    while (is_plain && in.at < in.end) {
        Bytes start = in.at;
        is_plain = take_pair(&in, &key, &value) &&
                   add_range(lookup, key, value, (Range){start, in.at}, ranges, seen, &count);
    }
    PyObject *fingerprint = is_plain
                                ? join_ranges(lookup, ranges, count, ((View *)object)->head.name)
                                : Py_NewRef(Py_None);
    release_lookup(lookup);
    return fingerprint;
}
