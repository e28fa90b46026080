/* Spans by their parent links, as a forest in preorder.
 *
 * Knows ids of eight bytes; links in a circle and other ids are left to Python.
 */

typedef struct {
    Py_ssize_t count, room; /* spans; places in the table, a power of two */
    PyObject **ids;         /* borrowed from the frames, as are the parents */
    PyObject **parents;
    Py_ssize_t *table; /* open hash: number of a span, or -1 */
    Py_ssize_t *up, *child, *next, *order, *place, *stack;
} Links;

static void free_links(Links *links)
{
    PyMem_Free(links->ids);
    PyMem_Free(links->table);
}

static int allot_links(Links *links, Py_ssize_t count)
{
    memset(links, 0, sizeof *links);
    links->count = count;
    for (links->room = 8; links->room < 2 * count; links->room *= 2)
        ;
    links->ids = PyMem_Malloc((size_t)(2 * count + 1) * sizeof(PyObject *));
    links->table = PyMem_Malloc((size_t)(links->room + 6 * count) * sizeof(Py_ssize_t));
    if (links->ids == NULL || links->table == NULL) {
        free_links(links);
        PyErr_NoMemory();
        return -1;
    }
    links->parents = links->ids + count;
    links->up = links->table + links->room;
    links->child = links->up + count;
    links->next = links->child + count;
    links->order = links->next + count;
    links->place = links->order + count;
    links->stack = links->place + count;
    memset(links->table, 0xFF, (size_t)links->room * sizeof(Py_ssize_t));
    memset(links->child, 0xFF, (size_t)count * sizeof(Py_ssize_t));
    return 0;
}

static int same_id(PyObject *one, PyObject *other)
{
    return one == other || memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), ID_SIZE) == 0;
}

/* Where the id stands in the table, or the free place where it would. */
static Py_ssize_t slot_of(const Links *links, PyObject *id)
{
    Py_ssize_t slot = PyObject_Hash(id) & (links->room - 1); /* of bytes: cannot fail, runs no Python */
    while (links->table[slot] >= 0 && !same_id(links->ids[links->table[slot]], id))
        slot = (slot + 1) & (links->room - 1);
    return slot;
}

static int is_sound(PyObject *id)
{
    return PyBytes_CheckExact(id) && PyBytes_GET_SIZE(id) == ID_SIZE;
}

/* Every id and its parent's; 0 if one of them is unusual. */
static int gather(Links *links, PyObject *frames)
{
    PyObject *id, *frame;
    Py_ssize_t at = 0, number = 0;
    while (PyDict_Next(frames, &at, &id, &frame)) {
        if (!is_sound(id) || !PyTuple_CheckExact(frame) || PyTuple_GET_SIZE(frame) != 3)
            return 0;
        PyObject *parent = PyTuple_GET_ITEM(frame, 0);
        if (!is_sound(parent) && !(PyBytes_CheckExact(parent) && PyBytes_GET_SIZE(parent) == 0))
            return 0;
        links->ids[number] = id;
        links->parents[number] = parent;
        links->table[slot_of(links, id)] = number++;
    }
    return 1;
}

/* The last child comes first, as from a stack. Tops are left in `order`; their number is returned. */
static Py_ssize_t hang(Links *links)
{
    Py_ssize_t tops = 0;
    for (Py_ssize_t number = 0; number < links->count; number++) {
        PyObject *parent = links->parents[number];
        Py_ssize_t up = PyBytes_GET_SIZE(parent) == 0 ? -1 : links->table[slot_of(links, parent)];
        links->up[number] = up;
        if (up < 0) {
            links->order[tops++] = number;
            continue;
        }
        links->next[number] = links->child[up];
        links->child[up] = number;
    }
    return tops;
}

/* The numbers of the tops, in order of id, in a list of pairs that Python sorts: there is nearly always one. */
static PyObject *sorted_tops(const Links *links, Py_ssize_t tops)
{
    PyObject *pairs = PyList_New(tops);
    for (Py_ssize_t number = 0; pairs != NULL && number < tops; number++) {
        Py_ssize_t top = links->order[number];
        PyObject *pair = Py_BuildValue("(On)", links->ids[top], top);
        if (pair == NULL)
            Py_CLEAR(pairs);
        else
            PyList_SET_ITEM(pairs, number, pair);
    }
    if (pairs != NULL && tops > 1 && PyList_Sort(pairs) < 0)
        Py_CLEAR(pairs);
    return pairs;
}

/* Preorder into `order`, from one top; returns how many there are now. */
static Py_ssize_t grow(Links *links, Py_ssize_t top, Py_ssize_t length)
{
    Py_ssize_t depth = 0;
    links->stack[depth++] = top;
    while (depth > 0) {
        Py_ssize_t number = links->stack[--depth];
        links->place[number] = length;
        links->order[length++] = number;
        Py_ssize_t first = depth;
        for (Py_ssize_t each = links->child[number]; each >= 0; each = links->next[each])
            links->stack[depth++] = each;
        for (Py_ssize_t last = depth - 1; first < last; first++, last--) { /* the first of the list is visited first */
            Py_ssize_t kept = links->stack[first];
            links->stack[first] = links->stack[last];
            links->stack[last] = kept;
        }
    }
    return length;
}

static int set_number(PyObject *list, Py_ssize_t place, Py_ssize_t number)
{
    PyObject *made = PyLong_FromSsize_t(number);
    if (made == NULL)
        return -1;
    PyList_SET_ITEM(list, place, made);
    return 0;
}

/* One top: its place, and what it would hang from. */
static int add_top(PyObject *tops, PyObject *missing, Py_ssize_t place, PyObject *parent)
{
    static const char nothing[ID_SIZE];
    PyObject *at = PyLong_FromSsize_t(place), *none = NULL;
    if (at == NULL)
        return -1;
    if (PyBytes_GET_SIZE(parent) == ID_SIZE && memcmp(PyBytes_AS_STRING(parent), nothing, ID_SIZE) == 0)
        parent = none = PyBytes_FromStringAndSize(NULL, 0);
    int failed = parent == NULL || PyList_Append(tops, at) < 0 || PyDict_SetItem(missing, at, parent) < 0;
    Py_DECREF(at);
    Py_XDECREF(none);
    return failed ? -1 : 0;
}

static int grow_all(Links *links, PyObject *pairs, PyObject *tops, PyObject *missing, Py_ssize_t *length)
{
    *length = 0;
    for (Py_ssize_t number = 0; number < PyList_GET_SIZE(pairs); number++) {
        Py_ssize_t top = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyList_GET_ITEM(pairs, number), 1));
        if (add_top(tops, missing, *length, links->parents[top]) < 0)
            return -1;
        *length = grow(links, top, *length);
    }
    return 0;
}

/* The sizes of subtrees by place, in `stack`: nobody walks any more. */
static void measure(Links *links)
{
    Py_ssize_t *size = links->stack;
    for (Py_ssize_t place = 0; place < links->count; place++)
        size[place] = 1;
    for (Py_ssize_t place = links->count - 1; place >= 0; place--) {
        Py_ssize_t up = links->up[links->order[place]];
        if (up >= 0)
            size[links->place[up]] += size[place];
    }
}

static int list_forest(Links *links, PyObject *ids, PyObject *parents, PyObject *sizes)
{
    measure(links);
    for (Py_ssize_t place = 0; place < links->count; place++) {
        Py_ssize_t number = links->order[place], up = links->up[number];
        PyList_SET_ITEM(ids, place, Py_NewRef(links->ids[number]));
        if (set_number(parents, place, up < 0 ? -1 : links->place[up]) < 0 || set_number(sizes, place, links->stack[place]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *forest_of(Links *links)
{
    Py_ssize_t length = 0;
    PyObject *ids = PyList_New(links->count), *parents = PyList_New(links->count), *sizes = PyList_New(links->count);
    PyObject *tops = PyList_New(0), *missing = PyDict_New(), *forest = NULL, *pairs = sorted_tops(links, hang(links));
    if (ids && parents && sizes && tops && missing && pairs && grow_all(links, pairs, tops, missing, &length) == 0) {
        if (length < links->count)
            forest = Py_NewRef(Py_None);
        else if (list_forest(links, ids, parents, sizes) == 0)
            forest = PyTuple_Pack(5, ids, parents, sizes, tops, missing);
    }
    Py_XDECREF(ids);
    Py_XDECREF(parents);
    Py_XDECREF(sizes);
    Py_XDECREF(tops);
    Py_XDECREF(missing);
    Py_XDECREF(pairs);
    return forest;
}

static PyObject *plant(PyObject *Py_UNUSED(module), PyObject *frames)
{
    Links links;
    if (!PyDict_CheckExact(frames))
        Py_RETURN_NONE;
    if (allot_links(&links, PyDict_GET_SIZE(frames)) < 0)
        return NULL;
    PyObject *forest = gather(&links, frames) ? forest_of(&links) : Py_NewRef(Py_None);
    free_links(&links);
    return forest;
}
