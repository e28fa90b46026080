/* Lists that grow.
 *
 * Knows room and sizes; knows not what is listed. Needs no lock of the interpreter: `free` ends a list.
 */

/* The list with room for one more than are in it, which may have moved; NULL where there is no memory, and then it is as it was. */
static void *roomier(void *list, Py_ssize_t filled, Py_ssize_t *room, size_t size)
{
    if (filled < *room)
        return list;
    Py_ssize_t more = 2 * *room + 256;
    void *grown = realloc(list, (size_t)more * size);
    if (grown != NULL)
        *room = more;
    return grown;
}
