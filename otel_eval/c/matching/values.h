/* JSON values as numbers and nodes, so that comparing them needs no object.
 *
 * Knows what is plain: strings, numbers, booleans, None, lists and dicts with strings as keys, none of a class of
 * somebody's own, no NaN, not nested deeply. A scalar of the expected side has a number, equal ones the same; one that
 * nobody expected is UNSEEN, for it equals nothing that is expected.
 */

#define DEEPEST 60
#define MOST_ITEMS (1 << 20)

enum { UNSEEN = -1, ODD = INT_MIN }; /* other negative ones are nodes */

typedef struct {
    int key, value;
} Item;

typedef struct {
    int first, count, unseen; /* of its items, in order of key; how many keys nobody expected */
    int form;                 /* LIST, OBJECT, or BARE: an argument that is no object, as one with a single key */
    uint64_t hash;            /* the same for nodes that are alike */
} Node;

enum { LIST, OBJECT, BARE };

typedef struct {
    Item *items;
    Node *nodes;
    int item_count, item_room, node_count, node_room;
    PyObject *keys, *scalars; /* their numbers */
    int expects;              /* whether what is new gets a number */
} Store;

static const Node *node_of(const Store *store, int value)
{
    return store->nodes - 2 - value;
}

static void free_store(Store *store)
{
    PyMem_Free(store->items);
    PyMem_Free(store->nodes);
}

/* Room for so many items more: where the first one is; -1 if there are too many. */
static int reserve(Store *store, Py_ssize_t count)
{
    int first = store->item_count;
    if (count > MOST_ITEMS - first)
        return -1;
    if (first + count > store->item_room) {
        int room = 2 * (first + (int)count) + 64;
        Item *items = PyMem_Realloc(store->items, (size_t)room * sizeof(Item));
        if (items == NULL)
            return -1;
        store->items = items;
        store->item_room = room;
    }
    store->item_count += (int)count;
    return first;
}

static uint64_t mixed(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static int by_key(const void *one, const void *other)
{
    int first = ((const Item *)one)->key, second = ((const Item *)other)->key;
    return (first > second) - (first < second);
}

static void sort_items(Item *items, int count)
{
    if (count > 24) {
        qsort(items, (size_t)count, sizeof(Item), by_key);
        return;
    }
    for (int at = 1; at < count; at++) {
        Item moved = items[at];
        int place = at;
        for (; place > 0 && items[place - 1].key > moved.key; place--)
            items[place] = items[place - 1];
        items[place] = moved;
    }
}

/* A node of items that are in place; ODD if there is no room. */
static int new_node(Store *store, int first, int count, int unseen, int form)
{
    if (store->node_count == store->node_room) {
        int room = 2 * store->node_room + 32;
        Node *nodes = PyMem_Realloc(store->nodes, (size_t)room * sizeof(Node));
        if (nodes == NULL)
            return ODD;
        store->nodes = nodes;
        store->node_room = room;
    }
    uint64_t hash = mixed((uint64_t)form, (uint64_t)unseen);
    for (int at = first; at < first + count; at++) {
        Item item = store->items[at];
        uint64_t value = item.value < UNSEEN ? node_of(store, item.value)->hash : (uint64_t)item.value;
        hash = mixed(hash, (uint64_t)item.key << 32 ^ value);
    }
    store->nodes[store->node_count] = (Node){first, count, unseen, form, hash};
    return -2 - store->node_count++;
}

static int read_value(Store *store, PyObject *value, int depth);

static int read_list(Store *store, PyObject *list, int depth)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    int first = reserve(store, count);
    if (first < 0)
        return ODD;
    for (Py_ssize_t at = 0; at < count; at++) {
        int value = read_value(store, PyList_GET_ITEM(list, at), depth + 1);
        if (value == ODD)
            return ODD;
        store->items[first + at] = (Item){0, value};
    }
    return new_node(store, first, (int)count, 0, LIST);
}

static int key_of(const Store *store, PyObject *key)
{
    return store->expects ? new_number(store->keys, key) : number_of(store->keys, key);
}

static int read_dict(Store *store, PyObject *dict, int depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int first = reserve(store, PyDict_GET_SIZE(dict)), count = 0, unseen = 0;
    if (first < 0)
        return ODD;
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key))
            return ODD;
        int number = key_of(store, key), read = read_value(store, value, depth + 1);
        if (read == ODD || (number < 0 && store->expects))
            return ODD;
        if (number < 0)
            unseen++;
        else
            store->items[first + count++] = (Item){number, read};
    }
    sort_items(store->items + first, count);
    return new_node(store, first, count, unseen, OBJECT);
}

static int is_scalar(PyObject *value)
{
    return PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value) || value == Py_None ||
           (PyFloat_CheckExact(value) && PyFloat_AS_DOUBLE(value) == PyFloat_AS_DOUBLE(value));
}

static int same_text(PyObject *one, PyObject *other)
{
    return one == other ||
           (PyUnicode_GET_LENGTH(one) == PyUnicode_GET_LENGTH(other) && PyUnicode_KIND(one) == PyUnicode_KIND(other) &&
            memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)PyUnicode_GET_LENGTH(one) * PyUnicode_KIND(one)) == 0);
}

static int same_value(PyObject *one, PyObject *other, int depth);

static int same_dicts(PyObject *one, PyObject *other, int depth)
{
    PyObject *key, *value, *other_key, *other_value;
    Py_ssize_t at = 0, other_at = 0;
    if (PyDict_GET_SIZE(one) != PyDict_GET_SIZE(other))
        return 0;
    while (PyDict_Next(one, &at, &key, &value) && PyDict_Next(other, &other_at, &other_key, &other_value))
        if (!PyUnicode_CheckExact(key) || !PyUnicode_CheckExact(other_key) || !same_text(key, other_key) ||
            !same_value(value, other_value, depth + 1))
            return 0;
    return 1;
}

/* Whether two values are plain and so alike, down to the order of keys, that one need not be read; there are others that are equal. */
static int same_value(PyObject *one, PyObject *other, int depth)
{
    if (!Py_IS_TYPE(one, Py_TYPE(other)))
        return 0;
    if (PyUnicode_CheckExact(one))
        return same_text(one, other);
    if (is_scalar(one))
        return one == other || (PyLong_CheckExact(one) && PyObject_RichCompareBool(one, other, Py_EQ) == 1);
    return depth < DEEPEST && PyDict_CheckExact(one) && same_dicts(one, other, depth);
}

/* The number of a scalar, UNSEEN or a node; ODD if it is not plain. Nothing in it runs Python code. */
static int read_value(Store *store, PyObject *value, int depth)
{
    if (is_scalar(value)) {
        if (!store->expects)
            return number_of(store->scalars, value);
        int number = new_number(store->scalars, value);
        return number < 0 ? ODD : number;
    }
    if (depth >= DEEPEST)
        return ODD;
    if (PyDict_CheckExact(value))
        return read_dict(store, value, depth);
    return PyList_CheckExact(value) ? read_list(store, value, depth) : ODD;
}

/* As the node of an object; what is no object, as one with the key 0. */
static int read_arguments(Store *store, PyObject *value)
{
    int read = read_value(store, value, 0);
    if (read == ODD || PyDict_CheckExact(value))
        return read;
    int first = reserve(store, 1);
    if (first < 0)
        return ODD;
    store->items[first] = (Item){0, read};
    return new_node(store, first, 1, 0, BARE);
}
