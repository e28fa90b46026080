/* Estimates of the memory that a request takes, of which Python has the costs. */

/* What a field costs, and the level whose fields are in its content, or 0. */
typedef struct {
    int cost, inner;
} Rule;

/* The rules of a level: of fields 1 and 2 after that of all others. */
typedef struct {
    Rule other, first, second;
} Level;

/* 0 if anything is unusual; levels are nested as deep as `levels` has them. */
static int add_costs(Range in, const Level *levels, int level, Py_ssize_t limit, Py_ssize_t *total)
{
    uint64_t tag;
    Range content;
    while (in.at < in.end && *total <= limit) {
        if (!skip_field(&in, &tag, &content))
            return 0;
        Rule rule = tag == 0x0A   ? levels[level].first
                    : tag == 0x12 ? levels[level].second
                                  : levels[level].other;
        *total += rule.cost;
        if (rule.inner > 0 && !add_costs(content, levels, rule.inner, limit, total))
            return 0;
    }
    return 1;
}

static PyObject *fields_size(PyObject *Py_UNUSED(module), PyObject *args)
{
    Bytes body, levels;
    Py_ssize_t size, levels_size, limit, total = 0;
    if (!PyArg_ParseTuple(args, "y#y#n", &body, &size, &levels, &levels_size, &limit))
        return NULL;
    if (!add_costs((Range){body, body + size}, (const Level *)levels, 0, limit, &total))
        Py_RETURN_NONE;
    return PyLong_FromSsize_t(total);
}

/* Whether a list or a map in an AnyValue may begin after a tag: it is empty, or the tag of its
 * first member follows after one or two bytes of length. */
static int may_nest(Bytes at, Bytes end)
{
    int next[3];
    for (int index = 0; index < 3; index++)
        next[index] = at + index < end ? at[index] : -1;
    if (next[0] == 0 || next[0] == '\n' || (next[0] >= 0 && next[1] == '\n'))
        return 1;
    return next[2] == '\n' && next[0] != '*' && next[0] != '2' && next[1] != '*' &&
           next[1] != '2' && next[1] != 0;
}

static PyObject *content_size(PyObject *Py_UNUSED(module), PyObject *args)
{
    Bytes body, costs;
    Py_ssize_t size, costs_size, nested, total = 0;
    if (!PyArg_ParseTuple(args, "y#y#n", &body, &size, &costs, &costs_size, &nested))
        return NULL;
    for (Bytes at = body, end = body + size; at < end; at++) {
        total += costs[*at];
        if ((*at == '*' || *at == '2') && may_nest(at + 1, end))
            total += nested;
    }
    return PyLong_FromSsize_t(total);
}
