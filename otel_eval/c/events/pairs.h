/* Attributes of a span event: a dict or a list among them is JSON text.
 */

static int put_json(Buffer *out, PyObject *value, char *tag)
{
    *tag = TEXT;
    return PyDict_CheckExact(value) || PyList_CheckExact(value) ? put_value(out, value, 0) : ODD;
}
