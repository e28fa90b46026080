/* Which spans may be a run's own: agents, and those that enter their process.
 *
 * Knows one thing of the wire: with which six bytes SDKs end a span that tells its flags.
 */

/* Whether a span may enter its process, as far as its bytes say without being read; ASK if they do not. */
enum { NO, YES, ASK };
#define IS_REMOTE 0x02

static int enters(PyObject *parent, PyObject *payload)
{
    if (PyBytes_GET_SIZE(parent) == 0)
        return YES;
    if (!PyBytes_CheckExact(payload))
        return ASK;
    Py_ssize_t size = PyBytes_GET_SIZE(payload);
    if (size < 6)
        return ASK;
    const char *flags = PyBytes_AS_STRING(payload) + size - 6; /* what SDKs write last: field 16, fixed32 */
    if (flags[0] != (char)0x85 || flags[1] != 0x01)
        return ASK;
    return flags[3] & IS_REMOTE ? YES : NO;
}

/* Add a span to `found` if it may be a run's own. */
static int consider(Askers *askers, PyObject *frame, Py_ssize_t place, PyObject *dropped, PyObject *agent, PyObject *found)
{
    PyObject *payload = PyTuple_GET_ITEM(frame, 1);
    const Asker *asker = asker_of(askers, PyTuple_GET_ITEM(frame, 2));
    PyObject *view = asker == NULL ? NULL : PyObject_CallOneArg(asker->view, payload);
    PyObject *reading = view == NULL ? NULL : reading_of(asker, view, dropped);
    PyObject *kind = reading == NULL ? NULL : PyObject_GetAttr(reading, str_kind);
    int failed = kind == NULL;
    if (!failed && reading != dropped) {
        int may = kind == agent ? YES : enters(PyTuple_GET_ITEM(frame, 0), payload);
        PyObject *told = may == NO ? NULL : Py_BuildValue("(nOO)", place, view, may == YES ? Py_True : Py_False);
        failed = may != NO && (told == NULL || PyList_Append(found, told) < 0);
        Py_XDECREF(told);
    }
    Py_XDECREF(kind);
    Py_XDECREF(reading);
    Py_XDECREF(view);
    return failed ? -1 : 0;
}

static int is_frame(PyObject *frame)
{
    return PyTuple_CheckExact(frame) && PyTuple_GET_SIZE(frame) == 3 && PyBytes_CheckExact(PyTuple_GET_ITEM(frame, 0));
}

static PyObject *find_entries(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !PyList_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "entries(spans: list, of_scope, dropped, agent)");
        return NULL;
    }
    Askers askers = {.of_scope = given[1]};
    PyObject *found = PyList_New(0);
    int failed = found == NULL, plain = 1;
    for (Py_ssize_t place = 0; !failed && plain && place < PyList_GET_SIZE(given[0]); place++) {
        PyObject *item = PyList_GET_ITEM(given[0], place);
        PyObject *frame = PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == 4 ? PyTuple_GET_ITEM(item, 2) : NULL;
        plain = frame != NULL && is_frame(frame);
        if (!plain)
            break;
        Py_INCREF(item); /* Python may run, and change the list */
        failed = consider(&askers, frame, place, given[2], given[3], found) < 0;
        Py_DECREF(item);
    }
    let_all_go(&askers);
    if (failed || !plain)
        Py_CLEAR(found);
    if (failed)
        return NULL;
    return found != NULL ? found : Py_NewRef(Py_None);
}
