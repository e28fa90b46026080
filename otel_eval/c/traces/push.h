/* Spans put into the open traces that have room for them.
 *
 * Knows the slots of what is held of a trace; leaves everything but the plain case to Python.
 */

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
