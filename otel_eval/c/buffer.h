/* Bytes that grow.
 *
 * It holds bytes of any format.
 */

typedef struct {
    char *at;
    size_t size, room;
    char inline_bytes[1024]; /* most of what is written fits */
} Buffer;

static void init_buffer(Buffer *buffer)
{
    buffer->at = buffer->inline_bytes;
    buffer->size = 0;
    buffer->room = sizeof buffer->inline_bytes;
}

static void free_buffer(Buffer *buffer)
{
    if (buffer->at != buffer->inline_bytes)
        PyMem_Free(buffer->at);
}

static int make_room(Buffer *buffer, size_t size)
{
    if (size <= buffer->room - buffer->size)
        return DONE;
    size_t room = 2 * (buffer->size + size);
    char *inline_bytes = buffer->at == buffer->inline_bytes ? NULL : buffer->at;
    char *at = room > PY_SSIZE_T_MAX ? NULL : PyMem_Realloc(inline_bytes, room);
    if (at == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    if (inline_bytes == NULL)
        memcpy(at, buffer->inline_bytes, buffer->size);
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
