/* Bytes that grow.
 *
 * It holds bytes of any format.
 */

typedef struct {
    char *at;
    size_t size, room;
    char own[1024]; /* most of what is written fits */
} Buffer;

static void begin(Buffer *buffer)
{
    buffer->at = buffer->own;
    buffer->size = 0;
    buffer->room = sizeof buffer->own;
}

static void end(Buffer *buffer)
{
    if (buffer->at != buffer->own)
        PyMem_Free(buffer->at);
}

static int make_room(Buffer *buffer, size_t size)
{
    if (size <= buffer->room - buffer->size)
        return DONE;
    size_t room = 2 * (buffer->size + size);
    char *own = buffer->at == buffer->own ? NULL : buffer->at;
    char *at = room > PY_SSIZE_T_MAX ? NULL : PyMem_Realloc(own, room);
    if (at == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    if (own == NULL)
        memcpy(at, buffer->own, buffer->size);
    buffer->at = at;
    buffer->room = room;
    return DONE;
}

static int put(Buffer *buffer, const char *bytes, size_t size)
{
    if (make_room(buffer, size) == FAILED)
        return FAILED;
    memcpy(buffer->at + buffer->size, bytes, size);
    buffer->size += size;
    return DONE;
}

static int put_varint(Buffer *out, uint64_t number)
{
    char bytes[10];
    size_t size = 0;
    for (; number > 0x7F; number >>= 7)
        bytes[size++] = (char)(number | 0x80);
    bytes[size++] = (char)number;
    return put(out, bytes, size);
}
