/* What is above each span.
 *
 * Knows kinds and parents in preorder; knows no call.
 */

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
