/* A request split by trace id.
 *
 * Every field goes somewhere: what stands around spans to each part that gets some of them, what
 * belongs to no trace to the first. */

enum { IN_SCOPE, IN_GROUP, IN_REQUEST, LEVELS };

typedef struct {
    Buffer level[LEVELS]; /* members of the scope and of the group that are read, and the part of
                             the request so far */
} Part;

static int part_of_member(Range in, uint64_t id_tag, size_t count, size_t *part_index)
{
    uint64_t tag, number = 0;
    Range content = {NULL, NULL}, id = {NULL, NULL};
    while (in.at < in.end) {
        if (!skip_field(&in, &tag, &content))
            return UNUSUAL;
        if (tag == id_tag)
            id = content;
    }
    for (Bytes at = id.end - id.at > 8 ? id.end - 8 : id.at; at < id.end; at++)
        number = number << 8 | *at;
    *part_index = (size_t)(number % count);
    return DONE;
}

static int wrap(Part *part, int level, const Buffer *around)
{
    Buffer *members = &part->level[level], *to = &part->level[level + 1];
    char tag = level == IN_SCOPE ? 0x12 : 0x0A;
    size_t size = members->size;
    members->size = 0;
    if (put(to, &tag, 1) == FAILED || put_varint(to, around->size + size) == FAILED ||
        put(to, around->at, around->size) == FAILED)
        return FAILED;
    return put(to, members->at, size);
}

static int close_level(Part *parts, size_t count, int level, const Buffer *around)
{
    int used = 0;
    if (level == IN_REQUEST)
        return put(&parts[0].level[IN_REQUEST], around->at, around->size);
    for (size_t part_index = 0; part_index < count; part_index++) {
        int has = parts[part_index].level[level].size > 0;
        if (has && wrap(&parts[part_index], level, around) == FAILED)
            return FAILED;
        used |= has;
    }
    return used ? DONE : wrap(&parts[0], level, around);
}

static int split_fields(Part *parts, size_t count, Range in, int level, uint64_t id_tag)
{
    Buffer around;
    int outcome = DONE;
    init_buffer(&around);
    while (outcome == DONE && in.at < in.end) {
        Bytes start = in.at;
        Buffer *to = &around;
        uint64_t tag;
        size_t part_index = 0;
        Range content = {NULL, NULL};
        outcome = skip_field(&in, &tag, &content) ? DONE : UNUSUAL;
        if (outcome == DONE && tag == (level == IN_REQUEST ? 0x0A : 0x12)) {
            to = NULL;
            outcome = level > IN_SCOPE ? split_fields(parts, count, content, level - 1, id_tag)
                                       : part_of_member(content, id_tag, count, &part_index);
            if (level == IN_SCOPE)
                to = &parts[part_index].level[IN_SCOPE];
        }
        if (outcome == DONE && to != NULL)
            outcome = put(to, (const char *)start, (size_t)(in.at - start));
    }
    if (outcome == DONE)
        outcome = close_level(parts, count, level, &around);
    free_buffer(&around);
    return outcome;
}

static PyObject *parts_of(const Part *parts, size_t count)
{
    PyObject *bodies = PyList_New((Py_ssize_t)count);
    for (size_t part_index = 0; bodies != NULL && part_index < count; part_index++) {
        const Buffer *whole = &parts[part_index].level[IN_REQUEST];
        PyObject *body = PyBytes_FromStringAndSize(whole->at, (Py_ssize_t)whole->size);
        if (body == NULL)
            Py_CLEAR(bodies);
        else
            PyList_SET_ITEM(bodies, (Py_ssize_t)part_index, body);
    }
    return bodies;
}

static PyObject *split(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body, *bodies = NULL;
    Py_ssize_t count, id_field;
    if (!PyArg_ParseTuple(args, "Snn:split", &body, &count, &id_field))
        return NULL;
    Part *parts = count < 1 || count > 4096 ? NULL : PyMem_Malloc((size_t)count * sizeof *parts);
    if (parts == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t index = 0; index < count * LEVELS; index++)
        init_buffer(&parts[index / LEVELS].level[index % LEVELS]);
    Bytes at = (Bytes)PyBytes_AS_STRING(body);
    Range whole = {at, at + PyBytes_GET_SIZE(body)};
    int outcome =
        split_fields(parts, (size_t)count, whole, IN_REQUEST, (uint64_t)id_field << 3 | 2);
    if (outcome != FAILED)
        bodies = outcome == DONE ? parts_of(parts, (size_t)count) : Py_NewRef(Py_None);
    for (Py_ssize_t index = 0; index < count * LEVELS; index++)
        free_buffer(&parts[index / LEVELS].level[index % LEVELS]);
    PyMem_Free(parts);
    return bodies;
}
