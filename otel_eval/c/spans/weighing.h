/* What a request will take while it is read, by its lengths alone.
 *
 * The costs come from Python. It ends where the bytes are broken, as every reader of them does.
 */

enum { GROUP, HEAD, SCOPE, ITEM, FIELD, DEEP, COSTS };

typedef struct {
    Py_ssize_t costs[COSTS], weight, enough;
} Scales;

static int weigh_level(Scales *scales, Range in, int level);

static int weigh_field(Scales *scales, Range field, uint64_t number, int level)
{
    Py_ssize_t *costs = scales->costs;
    if (level == 0 && number == 1) {
        scales->weight += costs[GROUP];
        return !costs[HEAD] || weigh_level(scales, field, 1);
    }
    if ((level == 1 || level == 2) && number == 1) {
        scales->weight += costs[HEAD];
        return weigh_level(scales, field, 3);
    }
    if (level == 1 && number == 2) {
        scales->weight += costs[SCOPE];
        return weigh_level(scales, field, 2);
    }
    if (level == 2 && number == 2) {
        scales->weight += costs[ITEM];
        return !costs[DEEP] || weigh_level(scales, field, 3);
    }
    if (level == 3)
        scales->weight += costs[FIELD];
    return 1;
}

/* Behind a field without a length; what is in a group of protobuf counts as if it stood outside. */
static int skip_plain(Range *in, int kind)
{
    uint64_t number;
    Py_ssize_t size = kind == 1 ? 8 : 4;
    if (kind == 0)
        return take_varint(in, &number);
    if (kind == 3 || kind == 4)
        return 1;
    if ((kind != 1 && kind != 5) || in->end - in->at < size)
        return 0;
    in->at += size;
    return 1;
}

/* 0 where the bytes are broken. Calls itself three times at most. */
static int weigh_level(Scales *scales, Range in, int level)
{
    uint64_t tag, size;
    while (in.at < in.end && scales->weight <= scales->enough) {
        if (!take_varint(&in, &tag))
            return 0;
        if ((tag & 7) != 2) {
            if (!skip_plain(&in, (int)(tag & 7)))
                return 0;
            if (level == 3)
                scales->weight += scales->costs[FIELD];
            continue;
        }
        if (!take_varint(&in, &size) || size > (uint64_t)(in.end - in.at))
            return 0;
        if (!weigh_field(scales, (Range){in.at, in.at + size}, tag >> 3, level))
            return 0;
        in.at += size;
    }
    return 1;
}

static PyObject *weigh(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body;
    Scales scales = {{0}, 0, 0};
    Py_ssize_t *costs = scales.costs;
    if (!PyArg_ParseTuple(args, "S(nnnnnn)n:weigh", &body, &costs[GROUP], &costs[HEAD], &costs[SCOPE], &costs[ITEM],
                          &costs[FIELD], &costs[DEEP], &scales.enough))
        return NULL;
    Bytes at = (Bytes)PyBytes_AS_STRING(body);
    weigh_level(&scales, (Range){at, at + PyBytes_GET_SIZE(body)}, 0);
    return PyLong_FromSsize_t(scales.weight);
}
