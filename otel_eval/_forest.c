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
static PyObject *str_kind, *str_name, *str_call, *str_table, *str_start, *str_end;

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

static int list_forest(const Links *links, PyObject *ids, PyObject *parents, PyObject *sizes)
{
    Py_ssize_t *size = links->stack; /* not needed for walking any more */
    for (Py_ssize_t place = 0; place < links->count; place++)
        size[place] = 1;
    for (Py_ssize_t place = links->count - 1; place >= 0; place--) {
        Py_ssize_t number = links->order[place], up = links->up[number];
        up = up < 0 ? -1 : links->place[up];
        if (up >= 0)
            size[up] += size[place];
        PyList_SET_ITEM(ids, place, Py_NewRef(links->ids[number]));
        if (set_number(parents, place, up) < 0 || set_number(sizes, place, size[place]) < 0)
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

static void let_go(Asker *asker)
{
    Py_CLEAR(asker->envelope);
    Py_CLEAR(asker->view);
    Py_CLEAR(asker->scope);
    Py_CLEAR(asker->marks);
    Py_CLEAR(asker->wanted);
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
    Py_INCREF(envelope);
    let_go(asker);
    asker->envelope = envelope;
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

static int read_all(Read *read, PyObject *frames, PyObject *ids, PyObject *of_scope, PyObject *dropped)
{
    Asker asker = {0};
    int failed = 0;
    for (Py_ssize_t place = 0; !failed && place < PyList_GET_SIZE(read->views); place++) {
        PyObject *id = PyList_GET_ITEM(ids, place), *frame = PyDict_GetItemWithError(frames, id);
        if (frame == NULL || !PyTuple_CheckExact(frame) || PyTuple_GET_SIZE(frame) != 3) {
            PyErr_SetString(PyExc_ValueError, "ids must name frames");
            failed = 1;
            break;
        }
        PyObject *envelope = PyTuple_GET_ITEM(frame, 2);
        Py_INCREF(frame); /* Python may run below */
        if (envelope != asker.envelope)
            failed = turn_to(&asker, envelope, of_scope) < 0;
        failed = failed || read_one(&asker, read, place, id, PyTuple_GET_ITEM(frame, 1), dropped) < 0;
        Py_DECREF(frame);
    }
    let_go(&asker);
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

/* ------------------------------------------------------------------ calls */

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

/* The tool's name and the call's id; 0 if the span needs a closer look. */
static int ask_span(const Questions *ask, PyObject *view, PyObject **name, PyObject **call_id)
{
    PyObject *given[] = {view, ask->said, ask->id, ask->result, ask->words};
    PyObject *found = PyObject_VectorcallMethod(str_call, given, 5, NULL);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    else if (found == NULL)
        return -1;
    if (found == NULL || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2) {
        Py_XDECREF(found);
        return 0;
    }
    PyObject *span_name = PyObject_GetAttr(view, str_name);
    PyObject *key = span_name == NULL ? NULL : PyTuple_Pack(2, span_name, PyTuple_GET_ITEM(found, 0));
    *call_id = PyTuple_GET_ITEM(found, 1);
    *name = key == NULL ? NULL : PyDict_GetItemWithError(ask->names, key);
    int placeholder = *name == NULL ? 0 : PySet_Contains(ask->nothing, *call_id);
    Py_XINCREF(*name);
    Py_INCREF(*call_id);
    Py_XDECREF(span_name);
    Py_XDECREF(key);
    Py_DECREF(found);
    if (*name != NULL && placeholder == 0)
        return 1;
    Py_CLEAR(*name);
    Py_CLEAR(*call_id);
    return PyErr_Occurred() ? -1 : 0;
}

/* The lists of a survey, by place. */
typedef struct {
    PyObject *kinds, *readings, *views, *envelopes, *ids;
    PyObject *readers, *make, *unrecorded;
} Survey;

static PyObject *make_draft(const Survey *read, Py_ssize_t place, PyObject *table, PyObject *name, PyObject *call_id)
{
    PyObject *view = PyList_GET_ITEM(read->views, place), *at = PyLong_FromSsize_t(place), *draft = NULL;
    PyObject *scope = PyObject_GetAttr(PyList_GET_ITEM(read->envelopes, place), str_scope_name);
    PyObject *start = PyObject_GetAttr(view, str_start), *end = PyObject_GetAttr(view, str_end);
    if (at != NULL && scope != NULL && start != NULL && end != NULL) {
        PyObject *values[] = {at,      table,   name,   scope, start, end, PyList_GET_ITEM(read->ids, place),
                              call_id, Py_None, read->unrecorded, read->unrecorded};
        draft = PyObject_Vectorcall(read->make, values, sizeof values / sizeof *values, NULL);
    }
    Py_XDECREF(at);
    Py_XDECREF(scope);
    Py_XDECREF(start);
    Py_XDECREF(end);
    return draft;
}

/* One tool span into `found`, as a draft or, where Python must look, as None. */
static int draft_one(const Survey *read, Questions *ask, Py_ssize_t place, PyObject *found)
{
    PyObject *table = PyObject_GetAttr(PyList_GET_ITEM(read->readings, place), str_table), *name = NULL, *call_id = NULL;
    if (table == NULL)
        return -1;
    int known = table == ask->table ? 1 : turn_to_table(ask, table, read->readers);
    if (known > 0)
        known = ask_span(ask, PyList_GET_ITEM(read->views, place), &name, &call_id);
    PyObject *draft = known < 0 ? NULL : known ? make_draft(read, place, table, name, call_id) : Py_NewRef(Py_None);
    PyObject *at = draft == NULL ? NULL : PyLong_FromSsize_t(place);
    int failed = at == NULL || PyDict_SetItem(found, at, draft) < 0;
    Py_DECREF(table); /* the reading holds it */
    Py_XDECREF(name);
    Py_XDECREF(call_id);
    Py_XDECREF(draft);
    Py_XDECREF(at);
    return failed ? -1 : 0;
}

static PyObject *draft_calls(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    int sound = count == 9 && PyDict_Check(given[6]);
    for (Py_ssize_t number = 0; sound && number < 5; number++)
        sound = PyList_CheckExact(given[number]) && PyList_GET_SIZE(given[number]) == PyList_GET_SIZE(given[0]);
    if (!sound) {
        PyErr_SetString(PyExc_TypeError, "drafts(kinds, readings, views, envelopes, ids, tool, readers: dict, make, unrecorded)");
        return NULL;
    }
    Survey read = {given[0], given[1], given[2], given[3], given[4], given[6], given[7], given[8]};
    Questions ask = {0};
    PyObject *found = PyDict_New();
    for (Py_ssize_t place = 0; found != NULL && place < PyList_GET_SIZE(read.kinds); place++)
        if (PyList_GET_ITEM(read.kinds, place) == given[5] && draft_one(&read, &ask, place, found) < 0)
            Py_CLEAR(found);
    return found;
}

/* ----------------------------------------------------------------- module */

static PyMethodDef functions[] = {
    {"plant", plant, METH_O, "plant(frames): (ids, parents, sizes, tops, missing), or None if a link is unusual."},
    {"recognise", (PyCFunction)(void (*)(void))recognise, METH_FASTCALL,
     "recognise(frames, ids, of_scope, dropped): (views, envelopes, readings, kinds, ids of those that are dropped)."},
    {"link", (PyCFunction)(void (*)(void))link_kinds, METH_FASTCALL,
     "link(kinds, parents, other, agent, model): (above, agent_above, agents, models, tools)."},
    {"drafts", (PyCFunction)(void (*)(void))draft_calls, METH_FASTCALL,
     "drafts(kinds, readings, views, envelopes, ids, tool, readers, make, unrecorded): place of each tool span -> what `make`\n"
     "makes of it, or None where a closer look is needed."},
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
        {&str_start, "start_ns"},        {&str_end, "end_ns"},
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
