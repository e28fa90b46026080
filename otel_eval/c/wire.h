/* The wire: lengths, numbers and the fields of a span.
 *
 * Nothing here reads beyond the end of a range.
 */

typedef const unsigned char *Bytes;

typedef struct {
    Bytes at;
    Bytes end;
} Range;

/* What one walk along a span's fields finds; ranges that are absent have at == NULL. */
typedef struct {
    Range trace_id, span_id, parent_id, name, status;
    Range attributes, events; /* from the tag of the first one to behind the last one; nothing else
                                 lies between */
    uint64_t start, end;
    int kind;
    unsigned flags;
    uint64_t dropped; /* attributes that the sender left out */
} Head;

/* A length and the bytes it counts, within `in`; 0 if there are fewer, or the length takes more
 * than four bytes. */
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
    for (int index = 7; index >= 0; index--)
        number = number << 8 | in->at[index];
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

/* Attributes, or events, must follow one another, so that reading them later is one loop. */
static int take_repeated(Range *in, Bytes tag, Range *all)
{
    Range item;
    if (all->at == NULL)
        all->at = tag;
    else if (all->end != tag)
        return 0;
    if (!take(in, &item))
        return 0;
    all->end = in->at;
    return 1;
}

static int take_flags(Range *in, unsigned *flags)
{
    if (in->end - in->at < 5 || *in->at != 0x01)
        return 0;
    *flags = (unsigned)in->at[2] << 8; /* of the lower byte nothing is read */
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
        int is_read = 0;
        switch (*tag) {
        case 0x0A: is_read = take(&in, &head->trace_id); break;
        case 0x12: is_read = take(&in, &head->span_id); break;
        case 0x22: is_read = take(&in, &head->parent_id); break;
        case 0x2A: is_read = take(&in, &head->name); break;
        case 0x30: is_read = take_small(&in, &head->kind); break;
        case 0x39: is_read = take_fixed64(&in, &head->start); break;
        case 0x41: is_read = take_fixed64(&in, &head->end); break;
        case 0x4A: is_read = take_repeated(&in, tag, &head->attributes); break;
        case 0x5A: is_read = take_repeated(&in, tag, &head->events); break;
        case 0x1A:                                       /* trace state */
        case 0x6A: is_read = take(&in, &skipped); break; /* a link */
        case 0x7A: is_read = head->status.at == NULL && take(&in, &head->status); break;
        case 0x50: is_read = take_varint(&in, &head->dropped) && head->dropped <= UINT32_MAX; break;
        case 0x60: /* dropped events, links */
        case 0x70: is_read = take_varint(&in, &number) && number <= UINT32_MAX; break;
        case 0x85: is_read = take_flags(&in, &head->flags); break;
        default: break;
        }
        if (!is_read)
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
    return PyBytes_FromStringAndSize((const char *)from.at,
                                     from.at == NULL ? 0 : from.end - from.at);
}
