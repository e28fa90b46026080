/* A request split by trace id.
 *
 * Every field goes somewhere: what stands around spans to each part that gets some of them, what belongs to no trace to the first. */

enum { IN_SCOPE, IN_GROUP, IN_REQUEST, LEVELS };

typedef struct {
    Buffer level[LEVELS]; /* members of the scope and of the group that are read, and the part of the request so far */
} Part;

static int place_of(Range in, uint64_t id_tag, size_t count, size_t *place)
{
    uint64_t tag, number = 0;
    Range content = {NULL, NULL}, id = {NULL, NULL};
    while (in.at < in.end) {
        if (!skip_field(&in, &tag, &content))
            return ODD;
        if (tag == id_tag)
            id = content;
    }
    for (Bytes at = id.end - id.at > 8 ? id.end - 8 : id.at; at < id.end; at++)
        number = number << 8 | *at;
    *place = (size_t)(number % count);
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
    for (size_t place = 0; place < count; place++) {
        int has = parts[place].level[level].size > 0;
        if (has && wrap(&parts[place], level, around) == FAILED)
            return FAILED;
        used |= has;
    }
    return used ? DONE : wrap(&parts[0], level, around);
}

static int split_fields(Part *parts, size_t count, Range in, int level, uint64_t id_tag)
{
    Buffer around;
    int done = DONE;
    begin(&around);
    while (done == DONE && in.at < in.end) {
        Bytes start = in.at;
        Buffer *to = &around;
        uint64_t tag;
        size_t place = 0;
        Range content = {NULL, NULL};
        done = skip_field(&in, &tag, &content) ? DONE : ODD;
        if (done == DONE && tag == (level == IN_REQUEST ? 0x0A : 0x12)) {
            to = NULL;
            done = level > IN_SCOPE ? split_fields(parts, count, content, level - 1, id_tag) : place_of(content, id_tag, count, &place);
            if (level == IN_SCOPE)
                to = &parts[place].level[IN_SCOPE];
        }
        if (done == DONE && to != NULL)
            done = put(to, (const char *)start, (size_t)(in.at - start));
    }
    if (done == DONE)
        done = close_level(parts, count, level, &around);
    end(&around);
    return done;
}

static PyObject *parts_of(const Part *parts, size_t count)
{
    PyObject *found = PyList_New((Py_ssize_t)count);
    for (size_t place = 0; found != NULL && place < count; place++) {
        const Buffer *whole = &parts[place].level[IN_REQUEST];
        PyObject *each = PyBytes_FromStringAndSize(whole->at, (Py_ssize_t)whole->size);
        if (each == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, (Py_ssize_t)place, each);
    }
    return found;
}

static PyObject *split(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body, *found = NULL;
    Py_ssize_t count, id_field;
    if (!PyArg_ParseTuple(args, "Snn:split", &body, &count, &id_field))
        return NULL;
    Part *parts = count < 1 || count > 4096 ? NULL : PyMem_Malloc((size_t)count * sizeof *parts);
    if (parts == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t each = 0; each < count * LEVELS; each++)
        begin(&parts[each / LEVELS].level[each % LEVELS]);
    Bytes at = (Bytes)PyBytes_AS_STRING(body);
    Range whole = {at, at + PyBytes_GET_SIZE(body)};
    int done = split_fields(parts, (size_t)count, whole, IN_REQUEST, (uint64_t)id_field << 3 | 2);
    if (done != FAILED)
        found = done == DONE ? parts_of(parts, (size_t)count) : Py_NewRef(Py_None);
    for (Py_ssize_t each = 0; each < count * LEVELS; each++)
        end(&parts[each / LEVELS].level[each % LEVELS]);
    PyMem_Free(parts);
    return found;
}
