/* The one run of a plain trace.
 *
 * Knows how links, kinds and calls go together where nothing is out of the ordinary; says so where anything is.
 */

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
    PyObject *ids = PyList_New(plain->last - plain->first);
    for (Py_ssize_t place = plain->first; ids != NULL && place < plain->last; place++)
        PyList_SET_ITEM(ids, place - plain->first, Py_NewRef(plain->links->ids[plain->links->order[place]]));
    return ids;
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
