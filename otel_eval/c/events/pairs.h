/* Attributes as KeyValue fields of a span event; a dict or a list is JSON text.
 */

static const char ATTRIBUTE = 0x1A; /* the tag of an event's attributes */

static int put_json(Buffer *out, const char *key, size_t key_size, PyObject *value)
{
    Buffer json;
    begin(&json);
    int done = put_value(&json, value, 0);
    if (done == DONE)
        done = put_pair(out, ATTRIBUTE, key, key_size, TEXT, json.at, json.size);
    end(&json);
    return done;
}

static int put_plain(Buffer *out, const char *key, size_t key_size, PyObject *value)
{
    Buffer number;
    char tag;
    begin(&number);
    int done = put_number(&number, value, &tag); /* always fits into the buffer's own room */
    return done == DONE ? put_pair(out, ATTRIBUTE, key, key_size, tag, number.at, number.size) : done;
}

static int put_attribute(Buffer *out, PyObject *key, PyObject *value)
{
    size_t key_size, size;
    const char *name = text_at(key, &key_size), *text = text_at(value, &size);
    if (name == NULL)
        return ODD;
    if (text != NULL)
        return put_pair(out, ATTRIBUTE, name, key_size, TEXT, text, size);
    if (is_number(value))
        return put_plain(out, name, key_size, value);
    return PyDict_CheckExact(value) || PyList_CheckExact(value) ? put_json(out, name, key_size, value) : ODD;
}
