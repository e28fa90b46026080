/* Kinds of expected things, prepared once, and what others have in common with them.
 *
 * Knows numbers that stand for kinds, and rows of bits; knows not what they are kinds of. The row is that of the Python
 * module that this is a shortcut for: a bit is 0 where the longest common subsequence grows.
 */

#define MOST_WORDS (1 << 21)

typedef struct {
    Py_ssize_t count, made, words; /* places; different kinds; 64 bits each in a row of so many bits as there are places */
    int *kind, *often;             /* by place; by kind */
    uint64_t *masks;               /* by kind a row with the places where it stands */
} Kinds;

static void free_kinds(Kinds *kinds)
{
    PyMem_Free(kinds->kind);
    PyMem_Free(kinds->masks);
}

static int allot_kinds(Kinds *kinds, Py_ssize_t count)
{
    kinds->count = count;
    kinds->words = (count + 63) / 64;
    kinds->kind = PyMem_Calloc((size_t)(2 * count + 1), sizeof(int));
    kinds->often = kinds->kind + count;
    return kinds->kind == NULL ? -1 : 0;
}

/* Once the kind of each place is known; -1 if the rows would be too large. */
static int lay_out(Kinds *kinds, Py_ssize_t made)
{
    kinds->made = made;
    if (made * kinds->words > MOST_WORDS)
        return -1;
    kinds->masks = PyMem_Calloc((size_t)(made * kinds->words + 1), sizeof(uint64_t));
    for (Py_ssize_t place = 0; kinds->masks != NULL && place < kinds->count; place++) {
        kinds->often[kinds->kind[place]]++;
        kinds->masks[kinds->kind[place] * kinds->words + place / 64] |= (uint64_t)1 << place % 64;
    }
    return kinds->masks == NULL ? -1 : 0;
}

/* The number that stands for something, -1 if none does; of strings and numbers, so that no look-up runs Python code. */
static int number_of(PyObject *numbers, PyObject *thing)
{
    PyObject *number = PyDict_GetItemWithError(numbers, thing);
    return number == NULL ? -1 : (int)PyLong_AsLong(number);
}

/* The number that stands for it, a new one if none does; -1 on failure. */
static int new_number(PyObject *numbers, PyObject *thing)
{
    PyObject *next = PyLong_FromSsize_t(PyDict_GET_SIZE(numbers));
    PyObject *number = next == NULL ? NULL : PyDict_SetDefault(numbers, thing, next);
    int found = number == NULL ? -1 : (int)PyLong_AsLong(number);
    Py_XDECREF(next);
    return found;
}

/* How many both sides have, each as often as the side that has it less often; `left` has room for every kind. */
static Py_ssize_t in_common(const Kinds *kinds, const int *made, Py_ssize_t count, int *left)
{
    Py_ssize_t found = 0;
    memcpy(left, kinds->often, (size_t)kinds->made * sizeof(int));
    for (Py_ssize_t place = 0; place < count; place++)
        if (made[place] >= 0 && left[made[place]] > 0) {
            left[made[place]]--;
            found++;
        }
    return found;
}

/* A row after one more mask: row + hits | row - hits, word by word with the carry. */
static void add_mask(uint64_t *row, const uint64_t *mask, Py_ssize_t words)
{
    uint64_t carry = 0;
    for (Py_ssize_t word = 0; word < words; word++) {
        uint64_t was = row[word], hits = was & mask[word], sum = was + hits, carried = sum + carry;
        carry = (sum < was) | (carried < sum);
        row[word] = carried | (was - hits);
    }
}

static Py_ssize_t grown(const uint64_t *row, Py_ssize_t count)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t word = 0; word * 64 < count; word++) {
        uint64_t gains = ~row[word];
        if (count - word * 64 < 64)
            gains &= ((uint64_t)1 << (count - word * 64)) - 1;
        for (; gains; gains &= gains - 1)
            found++;
    }
    return found;
}

/* The length of a longest common subsequence; `masks` has a row for each number in `made`, and `row` room for one. */
static Py_ssize_t common_length(const Kinds *kinds, const uint64_t *masks, const int *made, Py_ssize_t count, uint64_t *row)
{
    memset(row, 0xFF, (size_t)kinds->words * sizeof *row);
    if (kinds->words == 1) { /* all in one register */
        uint64_t only = *row;
        for (Py_ssize_t place = 0; place < count; place++)
            if (made[place] >= 0) {
                uint64_t hits = only & masks[made[place]];
                only = (only + hits) | (only - hits);
            }
        *row = only;
    } else
        for (Py_ssize_t place = 0; place < count; place++)
            if (made[place] >= 0)
                add_mask(row, masks + made[place] * kinds->words, kinds->words);
    return grown(row, kinds->count);
}

/* The place of the highest bit that is not set, below a limit; -1 if there is none. */
static Py_ssize_t last_gain(const uint64_t *row, Py_ssize_t limit)
{
    for (Py_ssize_t word = (limit - 1) / 64; limit > 0 && word >= 0; word--) {
        uint64_t gains = ~row[word];
        if (limit - word * 64 < 64)
            gains &= ((uint64_t)1 << (limit - word * 64)) - 1;
        if (gains == 0)
            continue;
        Py_ssize_t bit = 63;
        while (!(gains >> bit & 1))
            bit--;
        return word * 64 + bit;
    }
    return -1;
}

/* The column of each place in a longest common subsequence, or -1: one step on a row for each column, there and back.
 * -1 if there is no room. */
static int common_pairs(const Kinds *kinds, const uint64_t *masks, const int *made, Py_ssize_t count, int *column_of)
{
    Py_ssize_t words = kinds->words, limit = kinds->count, place;
    memset(column_of, 0xFF, (size_t)kinds->count * sizeof(int));
    if ((count + 1) * words > MOST_WORDS)
        return -1;
    uint64_t *rows = malloc((size_t)((count + 1) * words + 1) * sizeof *rows);
    if (rows == NULL)
        return -1;
    memset(rows, 0xFF, (size_t)words * sizeof *rows);
    for (Py_ssize_t column = 0; column < count; column++) {
        uint64_t *row = memcpy(rows + (column + 1) * words, rows + column * words, (size_t)words * sizeof *rows);
        if (made[column] >= 0)
            add_mask(row, masks + made[column] * words, words);
    }
    for (Py_ssize_t column = count - 1; column >= 0; column--) {
        const uint64_t *row = rows + (column + 1) * words, *before = row - words;
        if ((place = last_gain(row, limit)) < 0)
            break;
        if (!(before[place / 64] >> place % 64 & 1)) /* an earlier column made the step */
            continue;
        column_of[place] = (int)column;
        limit = place;
    }
    free(rows);
    return 0;
}
