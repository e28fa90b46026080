/* The walks over every span of a trace that a closed trace begins with.
 *
 * Knows: ids, parent links, and how a view, an envelope and a scope's reader are asked. Refuses to know: bytes on any wire,
 * attributes, tables. Links that run in a circle, ids of another length than eight bytes, a view without a fingerprint:
 * then Python is asked instead, whose answer counts. So both ways give equal results, and this is only a shortcut.
 *
 * Nothing recurses, and the hash of an id is Python's own keyed one, so that nobody can choose ids that collide.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

static PyObject *str_scope_name, *str_view, *str_dropped, *str_marks, *str_wanted, *str_named, *str_read, *str_fingerprint;
static PyObject *str_kind, *str_name, *str_call, *str_table, *str_start, *str_end, *str_hex;

#define ID_SIZE 8

/* ------------------------------------------------------------------ plant */

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

/* -------------------------------------------------------------- recognise */

/* What the spans of one envelope are asked with. */
typedef struct {
    PyObject *envelope, *view, *scope, *marks, *wanted;
    int dropped, named;
} Asker;

/* Those of a trace: spans of several services and scopes alternate. */
#define ASKERS 8
typedef struct {
    Asker each[ASKERS];
    int count, last;
    PyObject *of_scope; /* borrowed */
} Askers;

static void let_go(Asker *asker)
{
    Py_CLEAR(asker->envelope);
    Py_CLEAR(asker->view);
    Py_CLEAR(asker->scope);
    Py_CLEAR(asker->marks);
    Py_CLEAR(asker->wanted);
}

static void let_all_go(Askers *askers)
{
    while (askers->count > 0)
        let_go(&askers->each[--askers->count]);
}

static int truth_of(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int truth = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return truth;
}

static int turn_to(Asker *asker, PyObject *envelope, PyObject *of_scope)
{
    asker->envelope = Py_NewRef(envelope);
    PyObject *name = PyObject_GetAttr(envelope, str_scope_name);
    asker->scope = name == NULL ? NULL : PyObject_CallOneArg(of_scope, name);
    Py_XDECREF(name);
    if (asker->scope == NULL)
        return -1;
    asker->view = PyObject_GetAttr(envelope, str_view);
    asker->marks = PyObject_GetAttr(asker->scope, str_marks);
    asker->wanted = PyObject_GetAttr(asker->scope, str_wanted);
    asker->dropped = truth_of(asker->scope, str_dropped);
    asker->named = truth_of(asker->scope, str_named);
    if (asker->marks != NULL && !PyDict_CheckExact(asker->marks))
        PyErr_SetString(PyExc_TypeError, "marks must be a dict");
    return asker->view == NULL || asker->wanted == NULL || PyErr_Occurred() ? -1 : 0;
}

static const Asker *asker_of(Askers *askers, PyObject *envelope)
{
    if (askers->count > 0 && askers->each[askers->last].envelope == envelope)
        return &askers->each[askers->last];
    for (askers->last = 0; askers->last < askers->count; askers->last++)
        if (askers->each[askers->last].envelope == envelope)
            return &askers->each[askers->last];
    if (askers->count == ASKERS)
        let_all_go(askers);
    askers->last = askers->count;
    Asker *asker = &askers->each[askers->count++];
    memset(asker, 0, sizeof *asker);
    return turn_to(asker, envelope, askers->of_scope) < 0 ? NULL : asker;
}

/* What the span was remembered to be; NULL without an error if nothing was. */
static PyObject *remembered(const Asker *asker, PyObject *view, PyObject *mark)
{
    PyObject *key = Py_NewRef(mark);
    if (asker->named) {
        PyObject *name = PyObject_GetAttr(view, str_name);
        Py_SETREF(key, name == NULL ? NULL : PyTuple_Pack(2, name, mark));
        Py_XDECREF(name);
    }
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(asker->marks, key);
    Py_XINCREF(known);
    Py_XDECREF(key);
    return known;
}

static PyObject *reading_of(const Asker *asker, PyObject *view, PyObject *dropped)
{
    if (asker->dropped)
        return Py_NewRef(dropped);
    PyObject *mark = PyObject_CallMethodOneArg(view, str_fingerprint, asker->wanted);
    if (mark == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return NULL;
        PyErr_Clear();
        mark = Py_NewRef(Py_None);
    }
    PyObject *known = mark == Py_None ? NULL : remembered(asker, view, mark);
    Py_DECREF(mark);
    return known != NULL || PyErr_Occurred() ? known : PyObject_CallMethodOneArg(asker->scope, str_read, view);
}

typedef struct {
    PyObject *views, *envelopes, *readings, *kinds, *gone;
} Read;

/* One span: its view, envelope, reading and kind, in that place of the lists. */
static int read_one(const Asker *asker, Read *read, Py_ssize_t place, PyObject *id, PyObject *payload, PyObject *dropped)
{
    PyObject *view = PyObject_CallOneArg(asker->view, payload);
    if (view == NULL)
        return -1;
    PyList_SET_ITEM(read->views, place, view);
    PyList_SET_ITEM(read->envelopes, place, Py_NewRef(asker->envelope));
    PyObject *reading = reading_of(asker, view, dropped);
    if (reading == NULL)
        return -1;
    PyList_SET_ITEM(read->readings, place, reading);
    PyObject *kind = PyObject_GetAttr(reading, str_kind);
    if (kind == NULL)
        return -1;
    PyList_SET_ITEM(read->kinds, place, kind);
    return reading == dropped ? PySet_Add(read->gone, id) : 0;
}

/* The frame of an id, held: Python may run before it is used. */
static PyObject *frame_of(PyObject *frames, PyObject *id)
{
    PyObject *frame = PyDict_GetItemWithError(frames, id);
    if (frame != NULL && PyTuple_CheckExact(frame) && PyTuple_GET_SIZE(frame) == 3)
        return Py_NewRef(frame);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "ids must name frames");
    return NULL;
}

static int read_all(Read *read, PyObject *frames, PyObject *ids, PyObject *of_scope, PyObject *dropped)
{
    Askers askers = {.of_scope = of_scope};
    int failed = 0;
    for (Py_ssize_t place = 0; !failed && place < PyList_GET_SIZE(read->views); place++) {
        PyObject *id = PyList_GET_ITEM(ids, place), *frame = frame_of(frames, id);
        const Asker *asker = frame == NULL ? NULL : asker_of(&askers, PyTuple_GET_ITEM(frame, 2));
        failed = asker == NULL || read_one(asker, read, place, id, PyTuple_GET_ITEM(frame, 1), dropped) < 0;
        Py_XDECREF(frame);
    }
    let_all_go(&askers);
    return failed ? -1 : 0;
}

static PyObject *recognise(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !PyDict_CheckExact(given[0]) || !PyList_CheckExact(given[1])) {
        PyErr_SetString(PyExc_TypeError, "recognise(frames: dict, ids: list, of_scope, dropped)");
        return NULL;
    }
    Py_ssize_t size = PyList_GET_SIZE(given[1]);
    Read read = {PyList_New(size), PyList_New(size), PyList_New(size), PyList_New(size), PySet_New(NULL)};
    PyObject *made = NULL;
    if (read.views && read.envelopes && read.readings && read.kinds && read.gone)
        if (read_all(&read, given[0], given[1], given[2], given[3]) == 0)
            made = PyTuple_Pack(5, read.views, read.envelopes, read.readings, read.kinds, read.gone);
    Py_XDECREF(read.views);
    Py_XDECREF(read.envelopes);
    Py_XDECREF(read.readings);
    Py_XDECREF(read.kinds);
    Py_XDECREF(read.gone);
    return made;
}

/* ------------------------------------------------------------------- link */

static int append_number(PyObject *list, Py_ssize_t number)
{
    PyObject *made = PyLong_FromSsize_t(number);
    int failed = made == NULL || PyList_Append(list, made) < 0;
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

static int set_item(PyObject *map, Py_ssize_t key, Py_ssize_t value)
{
    PyObject *at = PyLong_FromSsize_t(key), *made = PyLong_FromSsize_t(value);
    int failed = at == NULL || made == NULL || PyDict_SetItem(map, at, made) < 0;
    Py_XDECREF(at);
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

/* The kinds, and what is found of them; `up` and `agent` are by place. */
typedef struct {
    PyObject *kinds, *parents, *other, *agent_kind, *model_kind;
    PyObject *above, *agent_above, *agents, *models, *tools;
    Py_ssize_t *up, *agent;
} Lines;

static int link_one(Lines *lines, Py_ssize_t place)
{
    PyObject *kind = PyList_GET_ITEM(lines->kinds, place);
    Py_ssize_t up = PyLong_AsSsize_t(PyList_GET_ITEM(lines->parents, place));
    if (up >= place || (up < 0 && PyErr_Occurred())) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a parent must come before its children");
        return -1;
    }
    if (up >= 0 && PyList_GET_ITEM(lines->kinds, up) == lines->other)
        up = lines->up[up];
    lines->up[place] = up;
    lines->agent[place] = up < 0 || PyList_GET_ITEM(lines->kinds, up) == lines->agent_kind ? up : lines->agent[up];
    if (append_number(lines->above, up) < 0)
        return -1;
    if (kind == lines->other)
        return 0;
    if (set_item(lines->agent_above, place, lines->agent[place]) < 0)
        return -1;
    if (kind == lines->agent_kind)
        return append_number(lines->agents, place);
    return append_number(kind == lines->model_kind ? lines->models : lines->tools, place);
}

static PyObject *link_all(Lines *lines)
{
    Py_ssize_t count = PyList_GET_SIZE(lines->kinds);
    lines->up = PyMem_Malloc((size_t)(2 * count + 1) * sizeof(Py_ssize_t));
    if (lines->up == NULL)
        return PyErr_NoMemory();
    lines->agent = lines->up + count;
    int failed = 0;
    for (Py_ssize_t place = 0; !failed && place < count; place++)
        failed = link_one(lines, place) < 0;
    PyMem_Free(lines->up);
    return failed ? NULL : PyTuple_Pack(5, lines->above, lines->agent_above, lines->agents, lines->models, lines->tools);
}

static PyObject *link_kinds(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 5 || !PyList_CheckExact(given[0]) || !PyList_CheckExact(given[1]) ||
        PyList_GET_SIZE(given[0]) != PyList_GET_SIZE(given[1])) {
        PyErr_SetString(PyExc_TypeError, "link(kinds: list, parents: list of the same length, other, agent, model)");
        return NULL;
    }
    Lines lines = {.kinds = given[0], .parents = given[1], .other = given[2], .agent_kind = given[3], .model_kind = given[4]};
    lines.above = PyList_New(0);
    lines.agent_above = PyDict_New();
    lines.agents = PyList_New(0);
    lines.models = PyList_New(0);
    lines.tools = PyList_New(0);
    PyObject *made = NULL;
    if (lines.above && lines.agent_above && lines.agents && lines.models && lines.tools)
        made = link_all(&lines);
    Py_XDECREF(lines.above);
    Py_XDECREF(lines.agent_above);
    Py_XDECREF(lines.agents);
    Py_XDECREF(lines.models);
    Py_XDECREF(lines.tools);
    return made;
}

/* ------------------------------------------------------------------ maker */

/* Makes instances of one class of slots from values in the order of its fields: a frozen dataclass would set each of
 * them through object.__setattr__, at six times the cost. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *made;
    Py_ssize_t count;
    Py_ssize_t *offsets;
    vectorcallfunc call;
} Maker;

static PyTypeObject *maker_type;

static void maker_dealloc(PyObject *object)
{
    Maker *self = (Maker *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->made);
    PyMem_Free(self->offsets);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *maker_call(PyObject *object, PyObject *const *given, size_t flags, PyObject *names)
{
    Maker *self = (Maker *)object;
    if (names != NULL || PyVectorcall_NARGS(flags) != self->count) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd values in order", self->made->tp_name, self->count);
        return NULL;
    }
    PyObject *made = self->made->tp_alloc(self->made, 0);
    for (Py_ssize_t number = 0; made != NULL && number < self->count; number++)
        *(PyObject **)((char *)made + self->offsets[number]) = Py_NewRef(given[number]);
    return made;
}

/* Where the slot lies in an instance; -1 if it is no plain slot. */
static Py_ssize_t offset_of(PyTypeObject *type, PyObject *name)
{
    PyObject *member = PyObject_GetAttr((PyObject *)type, name);
    Py_ssize_t offset = -1;
    if (member != NULL && Py_IS_TYPE(member, &PyMemberDescr_Type) && PyDescr_TYPE(member) == type &&
        ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else if (member != NULL)
        PyErr_Format(PyExc_TypeError, "%R is no slot of %s", name, type->tp_name);
    Py_XDECREF(member);
    return offset;
}

static int find_offsets(Maker *self, PyObject *names)
{
    for (Py_ssize_t number = 0; number < self->count; number++)
        if ((self->offsets[number] = offset_of(self->made, PyTuple_GET_ITEM(names, number))) < 0)
            return -1;
    return 0;
}

static PyObject *make_maker(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !PyType_Check(given[0]) || !PyTuple_CheckExact(given[1])) {
        PyErr_SetString(PyExc_TypeError, "maker(cls: type, names: tuple)");
        return NULL;
    }
    Maker *self = PyObject_New(Maker, maker_type);
    if (self == NULL)
        return NULL;
    self->made = (PyTypeObject *)Py_NewRef(given[0]);
    self->count = PyTuple_GET_SIZE(given[1]);
    self->call = maker_call;
    self->offsets = PyMem_Malloc((size_t)(self->count + 1) * sizeof(Py_ssize_t));
    if (self->offsets == NULL)
        PyErr_NoMemory();
    else if (find_offsets(self, given[1]) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static PyMemberDef maker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Maker, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_dealloc, maker_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, maker_members},
    {Py_tp_doc, "Makes instances of one class from the values of its slots."},
    {0, NULL},
};

static PyType_Spec maker_spec = {
    .name = "otel_eval._forest.Maker",
    .basicsize = sizeof(Maker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = maker_slots,
};

/* ------------------------------------------------------------------- push */

enum { FRAMES, SIZE, TOUCHED, CHECK, CHANGED, HELD_SLOTS };

static PyObject **held_slot(const Maker *slots, PyObject *trace, int which)
{
    return (PyObject **)((char *)trace + slots->offsets[which]);
}

/* What every span of one call of `push` is measured by. */
typedef struct {
    const Maker *slots;
    PyObject *traces, *now;
    double soon;
    Py_ssize_t most, most_bytes, overhead, added, size;
} Push;

static int is_item(PyObject *item)
{
    return PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == 4 && PyBytes_CheckExact(PyTuple_GET_ITEM(item, 0)) &&
           PyBytes_CheckExact(PyTuple_GET_ITEM(item, 1)) && PyLong_CheckExact(PyTuple_GET_ITEM(item, 3));
}

/* Whether the trace takes a plain span of that size. */
static int has_room(const Push *push, PyObject *trace, Py_ssize_t size, Py_ssize_t *held)
{
    PyObject *frames = *held_slot(push->slots, trace, FRAMES), *check = *held_slot(push->slots, trace, CHECK);
    PyObject *total = *held_slot(push->slots, trace, SIZE);
    if (frames == NULL || !PyDict_CheckExact(frames) || check == NULL || !PyFloat_CheckExact(check) || total == NULL ||
        !PyLong_CheckExact(total) || *held_slot(push->slots, trace, CHANGED) != Py_None)
        return 0;
    *held = PyLong_AsSsize_t(total);
    return PyDict_GET_SIZE(frames) < push->most && size <= push->most_bytes - *held && push->soon >= PyFloat_AS_DOUBLE(check);
}

/* One span; 0 if it needs a closer look. Keys are bytes, so no Python runs here. */
static int push_one(Push *push, PyObject *item)
{
    if (!is_item(item))
        return 0;
    PyObject *trace = PyDict_GetItemWithError(push->traces, PyTuple_GET_ITEM(item, 0)), *span_id = PyTuple_GET_ITEM(item, 1);
    Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 3)), held = 0;
    if (trace == NULL || !Py_IS_TYPE(trace, push->slots->made) || size < 0 || !has_room(push, trace, size, &held))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *frames = *held_slot(push->slots, trace, FRAMES);
    int known = PyDict_Contains(frames, span_id);
    if (known != 0)
        return known < 0 ? -1 : 0;
    size += push->overhead;
    PyObject *total = PyLong_FromSsize_t(held + size);
    if (total == NULL || PyDict_SetItem(frames, span_id, PyTuple_GET_ITEM(item, 2)) < 0) {
        Py_XDECREF(total);
        return -1;
    }
    Py_XSETREF(*held_slot(push->slots, trace, SIZE), total);
    Py_XSETREF(*held_slot(push->slots, trace, TOUCHED), Py_NewRef(push->now));
    push->added++;
    push->size += size;
    return 1;
}

static PyObject *push_spans(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *slots, *spans;
    Py_ssize_t at;
    Push push = {0};
    if (!PyArg_ParseTuple(args, "O!O!nO!O!dnnn:push", maker_type, &slots, &PyList_Type, &spans, &at, &PyDict_Type, &push.traces,
                          &PyFloat_Type, &push.now, &push.soon, &push.most, &push.most_bytes, &push.overhead))
        return NULL;
    push.slots = (Maker *)slots;
    if (push.slots->count != HELD_SLOTS || at < 0) {
        PyErr_SetString(PyExc_ValueError, "push wants the slots frames, size, touched, check and changed, and a place");
        return NULL;
    }
    int fits = 1;
    while (at < PyList_GET_SIZE(spans) && (fits = push_one(&push, PyList_GET_ITEM(spans, at))) > 0)
        at++;
    return fits < 0 ? NULL : Py_BuildValue("(nnn)", at, push.added, push.size);
}

/* ------------------------------------------------------------------ plain */

/* How the tool spans of one table are asked: see `ToolReader.plain`. */
typedef struct {
    PyObject *table; /* borrowed from a reading */
    PyObject *said, *id, *result, *words, *names, *nothing;
} Questions;

static int turn_to_table(Questions *ask, PyObject *table, PyObject *readers)
{
    PyObject *plain = PyDict_GetItemWithError(readers, table);
    memset(ask, 0, sizeof *ask);
    if (plain == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyArg_ParseTuple(plain, "OOOOO!O:plain", &ask->said, &ask->id, &ask->result, &ask->words, &PyDict_Type, &ask->names,
                          &ask->nothing))
        return -1;
    ask->table = table;
    return 1;
}

/* A tool span that surely is a call which did not fail. */
typedef struct {
    unsigned long long start, end;
    PyObject *id; /* borrowed from the frames */
    PyObject *name, *call_id, *start_ns, *end_ns;
} Call;

static void free_call(Call *call)
{
    Py_XDECREF(call->name);
    Py_XDECREF(call->call_id);
    Py_XDECREF(call->start_ns);
    Py_XDECREF(call->end_ns);
}

/* The tool's name and the call's id; 0 if the span needs a closer look. */
static int ask_span(const Questions *ask, PyObject *view, Call *call)
{
    PyObject *given[] = {view, ask->said, ask->id, ask->result, ask->words};
    PyObject *found = PyObject_VectorcallMethod(str_call, given, 5, NULL);
    if (found == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    if (found == NULL || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2) {
        Py_XDECREF(found);
        return 0;
    }
    PyObject *span_name = PyObject_GetAttr(view, str_name);
    PyObject *key = span_name == NULL ? NULL : PyTuple_Pack(2, span_name, PyTuple_GET_ITEM(found, 0));
    call->call_id = Py_NewRef(PyTuple_GET_ITEM(found, 1));
    call->name = key == NULL ? NULL : PyDict_GetItemWithError(ask->names, key);
    Py_XINCREF(call->name);
    Py_XDECREF(span_name);
    Py_XDECREF(key);
    Py_DECREF(found);
    if (call->name == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int placeholder = PySet_Contains(ask->nothing, call->call_id);
    return placeholder < 0 ? -1 : !placeholder;
}

static int ask_times(PyObject *view, Call *call)
{
    call->start_ns = PyObject_GetAttr(view, str_start);
    call->end_ns = call->start_ns == NULL ? NULL : PyObject_GetAttr(view, str_end);
    if (call->end_ns == NULL)
        return -1;
    call->start = PyLong_AsUnsignedLongLong(call->start_ns);
    call->end = PyLong_AsUnsignedLongLong(call->end_ns);
    return PyErr_Occurred() ? -1 : 1;
}

static int in_order(const void *one, const void *other)
{
    const Call *a = one, *b = other;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return memcmp(PyBytes_AS_STRING(a->id), PyBytes_AS_STRING(b->id), ID_SIZE);
}

/* A trace with one root, one agent, and tool spans of one scope within it, none below another. */
typedef struct {
    PyObject *frames, *dropped, *readers, *other, *agent_kind, *model_kind; /* given */
    Links *links;
    Askers askers;
    Questions ask;
    PyObject *scope_name;                           /* of the tool spans */
    PyObject *view, *reading, *envelope, *first_id; /* of the agent */
    Py_ssize_t first, last;                         /* places of the agent's subtree */
    Py_ssize_t tool_until, models, count;           /* where the last tool span's subtree ends; model calls; calls */
    PyObject **kinds;                               /* by place, borrowed: kinds live for ever */
    Py_ssize_t *above;                              /* by place: the nearest agent, model or tool span above, or -1 */
    Call *calls;
} Plain;

static int take_agent(Plain *plain, Py_ssize_t place, PyObject *view, PyObject *reading, PyObject *envelope, PyObject *id)
{
    if (plain->view != NULL)
        return 0;
    plain->view = Py_NewRef(view);
    plain->reading = Py_NewRef(reading);
    plain->envelope = Py_NewRef(envelope);
    plain->first_id = id;
    plain->first = place;
    plain->last = place + plain->links->stack[place]; /* sizes */
    return 1;
}

static int take_call(Plain *plain, Py_ssize_t place, PyObject *view, PyObject *reading, PyObject *envelope, PyObject *id)
{
    PyObject *table = PyObject_GetAttr(reading, str_table), *scope = PyObject_GetAttr(envelope, str_scope_name);
    int fits = table == NULL || scope == NULL ? -1 : place >= plain->tool_until;
    plain->tool_until = place + plain->links->stack[place];
    if (fits > 0 && table != plain->ask.table)
        fits = turn_to_table(&plain->ask, table, plain->readers);
    if (fits > 0 && plain->scope_name != NULL && plain->scope_name != scope)
        fits = PyObject_RichCompareBool(plain->scope_name, scope, Py_EQ);
    if (fits > 0)
        Py_XSETREF(plain->scope_name, Py_NewRef(scope));
    Py_XDECREF(table); /* the reading holds it */
    Py_XDECREF(scope);
    if (fits <= 0)
        return fits;
    Call *call = &plain->calls[plain->count++];
    memset(call, 0, sizeof *call);
    call->id = id;
    fits = ask_span(&plain->ask, view, call);
    return fits > 0 ? ask_times(view, call) : fits;
}

/* Whether the agent, model or tool span is within the agent's subtree: spans before it and behind it are not. */
static int is_within(const Plain *plain, Py_ssize_t place)
{
    return plain->view != NULL && place < plain->last;
}

static int take_span(Plain *plain, Py_ssize_t place, PyObject *id, PyObject *frame)
{
    PyObject *envelope = PyTuple_GET_ITEM(frame, 2);
    const Asker *asker = asker_of(&plain->askers, envelope);
    PyObject *view = asker == NULL ? NULL : PyObject_CallOneArg(asker->view, PyTuple_GET_ITEM(frame, 1));
    PyObject *reading = view == NULL ? NULL : reading_of(asker, view, plain->dropped);
    PyObject *kind = reading == NULL ? NULL : PyObject_GetAttr(reading, str_kind);
    Py_ssize_t up = plain->links->up[plain->links->order[place]];
    int fits = kind == NULL ? -1 : reading != plain->dropped;
    up = up < 0 ? -1 : plain->links->place[up];
    if (up >= 0 && plain->kinds[up] == plain->other)
        up = plain->above[up];
    plain->above[place] = up;
    plain->kinds[place] = kind;
    if (fits > 0 && kind == plain->agent_kind)
        fits = take_agent(plain, place, view, reading, envelope, id);
    else if (fits > 0 && kind == plain->model_kind)
        plain->models += is_within(plain, place) && !(up >= plain->first && plain->kinds[up] == plain->model_kind);
    else if (fits > 0 && kind != plain->other)
        fits = is_within(plain, place) ? take_call(plain, place, view, reading, envelope, id) : 0;
    Py_XDECREF(kind);
    Py_XDECREF(reading);
    Py_XDECREF(view);
    return fits;
}

static int take_spans(Plain *plain)
{
    int fits = 1;
    for (Py_ssize_t place = 0; fits > 0 && place < plain->links->count; place++) {
        PyObject *id = plain->links->ids[plain->links->order[place]], *frame = frame_of(plain->frames, id);
        fits = frame == NULL ? -1 : take_span(plain, place, id, frame);
        Py_XDECREF(frame);
    }
    return fits > 0 ? plain->count > 0 : fits;
}

static PyObject *hex_of(PyObject *id)
{
    return PyObject_CallMethodNoArgs(id, str_hex);
}

/* One call of the model: name, arguments, result, error, call id, span id, start, end, enclosing, agent path. */
static PyObject *make_call(const Call *call, PyObject *make, PyObject *unrecorded, PyObject *enclosing, PyObject *path)
{
    PyObject *span_id = hex_of(call->id), *made = NULL;
    if (span_id != NULL) {
        PyObject *values[] = {call->name, unrecorded,     unrecorded,   Py_None,   call->call_id,
                              span_id,    call->start_ns, call->end_ns, enclosing, path};
        made = PyObject_Vectorcall(make, values, sizeof values / sizeof *values, NULL);
    }
    Py_XDECREF(span_id);
    return made;
}

static PyObject *make_calls(Plain *plain, PyObject *make, PyObject *unrecorded, PyObject *path)
{
    PyObject *made = PyTuple_New(plain->count), *nothing = PyTuple_New(0);
    qsort(plain->calls, (size_t)plain->count, sizeof(Call), in_order);
    for (Py_ssize_t number = 0; made != NULL && number < plain->count; number++) {
        PyObject *call = make_call(&plain->calls[number], make, unrecorded, nothing, path);
        if (call == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, number, call);
    }
    Py_XDECREF(nothing);
    return made;
}

static PyObject *members_of(const Plain *plain)
{
    PyObject *ids = PyList_New(plain->last - plain->first), *members;
    for (Py_ssize_t place = plain->first; ids != NULL && place < plain->last; place++)
        PyList_SET_ITEM(ids, place - plain->first, Py_NewRef(plain->links->ids[plain->links->order[place]]));
    members = ids == NULL ? NULL : PyFrozenSet_New(ids);
    Py_XDECREF(ids);
    return members;
}

/* (what `facts` says, view, envelope, id, members, calls, number of model calls) */
static PyObject *tell(Plain *plain, PyObject *facts, PyObject *make, PyObject *unrecorded)
{
    PyObject *said = PyObject_CallFunctionObjArgs(facts, plain->view, plain->reading, NULL), *told = NULL;
    if (said == NULL || !PyTuple_CheckExact(said) || PyTuple_GET_SIZE(said) == 0) {
        if (said != NULL)
            PyErr_SetString(PyExc_TypeError, "facts must give a tuple that begins with the agent path");
        Py_XDECREF(said);
        return NULL;
    }
    PyObject *calls = make_calls(plain, make, unrecorded, PyTuple_GET_ITEM(said, 0)), *members = members_of(plain);
    if (calls != NULL && members != NULL)
        told = Py_BuildValue("(OOOOOOn)", said, plain->view, plain->envelope, plain->first_id, members, calls, plain->models);
    Py_XDECREF(calls);
    Py_XDECREF(members);
    Py_DECREF(said);
    return told;
}

static void free_plain(Plain *plain)
{
    let_all_go(&plain->askers);
    for (Py_ssize_t number = 0; number < plain->count; number++)
        free_call(&plain->calls[number]);
    PyMem_Free(plain->kinds);
    PyMem_Free(plain->calls);
    Py_XDECREF(plain->scope_name);
    Py_XDECREF(plain->view);
    Py_XDECREF(plain->reading);
    Py_XDECREF(plain->envelope);
}

static int allot_plain(Plain *plain)
{
    size_t count = (size_t)plain->links->count;
    plain->kinds = PyMem_Malloc((count + 1) * (sizeof(PyObject *) + sizeof(Py_ssize_t)));
    plain->calls = PyMem_Malloc((count + 1) * sizeof(Call));
    if (plain->kinds == NULL || plain->calls == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    plain->above = (Py_ssize_t *)(plain->kinds + count);
    return 1;
}

/* Whether there is one tree with a true root; then it is in preorder, and the sizes of subtrees are in `stack`. */
static int is_whole(Links *links)
{
    if (links->count == 0 || hang(links) != 1)
        return 0;
    PyObject *parent = links->parents[links->order[0]];
    static const char nothing[ID_SIZE];
    if (PyBytes_GET_SIZE(parent) == ID_SIZE && memcmp(PyBytes_AS_STRING(parent), nothing, ID_SIZE) != 0)
        return 0;
    if (grow(links, links->order[0], 0) < links->count)
        return 0;
    measure(links);
    return 1;
}

static PyObject *plain_of(Plain *plain, PyObject *const *given)
{
    PyObject *told = NULL;
    int fits = gather(plain->links, plain->frames) && is_whole(plain->links) ? allot_plain(plain) : 0;
    if (fits > 0)
        fits = take_spans(plain);
    if (fits >= 0)
        told = fits ? tell(plain, given[7], given[8], given[9]) : Py_NewRef(Py_None);
    free_plain(plain);
    return told;
}

static PyObject *plain_run(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 10 || !PyDict_CheckExact(given[0]) || !PyDict_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError,
                        "plain(frames: dict, of_scope, dropped, readers: dict, other, agent, model, facts, make, unrecorded)");
        return NULL;
    }
    Links links;
    if (allot_links(&links, PyDict_GET_SIZE(given[0])) < 0)
        return NULL;
    Plain plain = {.frames = given[0], .dropped = given[2], .readers = given[3], .links = &links};
    plain.askers.of_scope = given[1];
    plain.other = given[4];
    plain.agent_kind = given[5];
    plain.model_kind = given[6];
    PyObject *told = plain_of(&plain, given);
    free_links(&links);
    return told;
}

/* ----------------------------------------------------------------- module */

static PyMethodDef functions[] = {
    {"plant", plant, METH_O, "plant(frames): (ids, parents, sizes, tops, missing), or None if a link is unusual."},
    {"recognise", (PyCFunction)(void (*)(void))recognise, METH_FASTCALL,
     "recognise(frames, ids, of_scope, dropped): (views, envelopes, readings, kinds, ids of those that are dropped)."},
    {"link", (PyCFunction)(void (*)(void))link_kinds, METH_FASTCALL,
     "link(kinds, parents, other, agent, model): (above, agent_above, agents, models, tools)."},
    {"plain", (PyCFunction)(void (*)(void))plain_run, METH_FASTCALL,
     "plain(frames, of_scope, dropped, readers, other, agent, model, facts, make, unrecorded): (what `facts` says of the\n"
     "agent's view and reading, view, envelope, id, members, calls, number of model calls) of a trace that is one tree\n"
     "around one agent whose calls did not fail; None of any other."},
    {"push", push_spans, METH_VARARGS,
     "push(slots, spans, at, traces, now, soon, most, most_bytes, overhead): (place of the first span that needs a closer look,\n"
     "number added, bytes added)."},
    {"maker", (PyCFunction)(void (*)(void))make_maker, METH_FASTCALL,
     "maker(cls, names): a function that makes instances from the values of these slots, in order."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._forest",
    .m_doc = "A shortcut for the walks over every span of a trace.",
    .m_size = -1,
    .m_methods = functions,
};

static int intern_names(void)
{
    struct {
        PyObject **held;
        const char *name;
    } names[] = {
        {&str_scope_name, "scope_name"}, {&str_view, "view"},   {&str_dropped, "dropped"}, {&str_marks, "marks"},
        {&str_wanted, "wanted"},         {&str_named, "named"}, {&str_read, "read"},       {&str_fingerprint, "fingerprint"},
        {&str_kind, "kind"},             {&str_name, "name"},   {&str_call, "call"},       {&str_table, "table"},
        {&str_start, "start_ns"},        {&str_end, "end_ns"}, {&str_hex, "hex"},
    };
    for (size_t number = 0; number < sizeof names / sizeof *names; number++)
        if ((*names[number].held = PyUnicode_InternFromString(names[number].name)) == NULL)
            return -1;
    return 0;
}

PyMODINIT_FUNC PyInit__forest(void)
{
    if (intern_names() < 0)
        return NULL;
    maker_type = (PyTypeObject *)PyType_FromSpec(&maker_spec);
    return maker_type == NULL ? NULL : PyModule_Create(&definition);
}
