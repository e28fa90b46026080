/* What each span is: views, fingerprints, and what is remembered of them.
 *
 * Knows how an envelope, a view and a reader of a scope are asked; knows no table.
 */

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
