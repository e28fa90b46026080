/* Where some spans stand among the fields of a scope.
 *
 * What is done with the places is decided by the caller.
 */

static int add_range(PyObject *list, Bytes base, Bytes start, Bytes stop)
{
    PyObject *item = Py_BuildValue("(nn)", (Py_ssize_t)(start - base), (Py_ssize_t)(stop - base));
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? FAILED : DONE;
}

/* The next of the wanted spans, or an empty range that no span is equal to. */
static Range next_wanted(PyObject *wanted, Py_ssize_t number)
{
    PyObject *each = number < PyList_GET_SIZE(wanted) ? PyList_GET_ITEM(wanted, number) : NULL;
    if (each == NULL || !PyBytes_CheckExact(each))
        return (Range){NULL, NULL};
    Bytes at = (Bytes)PyBytes_AS_STRING(each);
    return (Range){at, at + PyBytes_GET_SIZE(each)};
}

/* Where the wanted spans stand among a scope's fields, and what stands there that is no span; ODD if it is unusual. */
static int part(Bytes base, Range in, PyObject *wanted, PyObject *found, PyObject *others, Py_ssize_t *spans)
{
    Range each, next = next_wanted(wanted, 0);
    while (in.at < in.end) {
        Bytes start = in.at;
        unsigned char tag = *in.at++;
        if ((tag != 0x0A && tag != 0x12 && tag != 0x1A) || !take(&in, &each)) /* the scope, a span, the schema's address */
            return ODD;
        int done = DONE;
        if (tag != 0x12) {
            done = add_range(others, base, start, in.at);
        } else if (next.at != NULL && each.end - each.at == next.end - next.at &&
                   memcmp(each.at, next.at, (size_t)(each.end - each.at)) == 0) {
            done = add_range(found, base, start, in.at);
            next = next_wanted(wanted, PyList_GET_SIZE(found));
        }
        *spans += tag == 0x12;
        if (done != DONE)
            return done;
    }
    return DONE;
}

static PyObject *find_spans(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body, *wanted, *told = NULL;
    Py_ssize_t start, stop, spans = 0;
    if (!PyArg_ParseTuple(args, "SnnO!:find_spans", &body, &start, &stop, &PyList_Type, &wanted))
        return NULL;
    if (start < 0 || stop < start || stop > PyBytes_GET_SIZE(body)) {
        PyErr_SetString(PyExc_ValueError, "the range is not within the body");
        return NULL;
    }
    Bytes base = (Bytes)PyBytes_AS_STRING(body);
    PyObject *found = PyList_New(0), *others = PyList_New(0);
    int done = FAILED;
    if (found != NULL && others != NULL)
        done = part(base, (Range){base + start, base + stop}, wanted, found, others, &spans);
    if (done == DONE)
        told = Py_BuildValue("(OOn)", found, others, spans);
    else if (done == ODD)
        told = Py_NewRef(Py_None);
    Py_XDECREF(found);
    Py_XDECREF(others);
    return told;
}
