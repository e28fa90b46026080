/* The heaviest one-to-one assignment, found row by row.
 *
 * Knows numbers only. It takes the steps of the Python module that this is a shortcut for, in the same order, so it finds
 * the same pairs and counts the same work.
 */

typedef struct {
    double far;
    int column, row;
} Way;

typedef struct {
    const Edges *edges;
    const int *list_of; /* by row */
    const int *same;    /* by row: a number that rows with the very same edges share */
    double *rent, *price, *best, *reached, *done_at;
    int *column, *owner, *parent, *rows_reached, *columns_done; /* by row, by column, by column, in order, in order */
    int *met, *closed, *seen;                                   /* by column, by column, by `same`: in which search */
    Way *queue;
    Py_ssize_t waiting, queue_room;
    int searches;
    long long steps;
} Search;

static int sooner(Way one, Way other)
{
    if (one.far != other.far)
        return one.far < other.far;
    return one.column != other.column ? one.column < other.column : one.row < other.row;
}

static int push(Search *search, Way way)
{
    Way *queue = roomier(search->queue, search->waiting, &search->queue_room, sizeof(Way));
    if (queue == NULL)
        return -1;
    search->queue = queue;
    Py_ssize_t at = search->waiting++;
    for (; at > 0 && sooner(way, queue[(at - 1) / 2]); at = (at - 1) / 2)
        queue[at] = queue[(at - 1) / 2];
    queue[at] = way;
    return 0;
}

static void pop(Search *search)
{
    Way *queue = search->queue, last = queue[--search->waiting];
    Py_ssize_t at = 0, child;
    while ((child = 2 * at + 1) < search->waiting) {
        if (child + 1 < search->waiting && sooner(queue[child + 1], queue[child]))
            child++;
        if (!sooner(queue[child], last))
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = last;
}

/* The ways on from a row that lies at `here`, as far as they are shorter than doing without. */
static int look_around(Search *search, int row, double here, double nearest)
{
    const Edges *edges = search->edges;
    const Edge *edge = edges->edges + edges->first[search->list_of[row]], *last = edges->edges + edges->first[search->list_of[row] + 1];
    search->steps += last - edge;
    for (; edge < last; edge++) {
        int column = edge->at;
        double far = here - edge->weight - search->rent[row] - search->price[column];
        double known_way = search->met[column] == search->searches ? search->best[column] : nearest;
        if (search->closed[column] == search->searches || !(far < known_way))
            continue;
        search->met[column] = search->searches;
        search->best[column] = far;
        search->parent[column] = row;
        if (push(search, (Way){far, column, row}) < 0)
            return -1;
    }
    return 0;
}

/* Hand the columns along the path found on, from its end back to its start. */
static void shift(Search *search, int start, int column, int quitter)
{
    if (column < 0) {
        column = search->column[quitter];
        search->column[quitter] = -1;
        if (quitter == start)
            return;
    }
    for (;;) {
        int row = search->parent[column], left = search->column[row];
        search->column[row] = column;
        search->owner[column] = row;
        if (row == start)
            return;
        column = left;
    }
}

static int augment(Search *search, int start)
{
    int row = start, quitter = start, column = -1, follow = 1, reached = 1, done = 0;
    double here = 0, nearest = -search->rent[start], end = 0;
    search->searches++;
    search->waiting = 0;
    search->rows_reached[0] = start;
    search->reached[0] = 0;
    search->seen[search->same[start]] = search->searches;
    for (;;) {
        if (follow && look_around(search, row, here, nearest) < 0)
            return -1;
        while (search->waiting && search->closed[search->queue[0].column] == search->searches)
            pop(search);
        if (!search->waiting || search->queue[0].far >= nearest) {
            end = nearest;
            column = -1;
            break;
        }
        here = search->queue[0].far;
        column = search->queue[0].column;
        pop(search);
        search->closed[column] = search->searches;
        search->columns_done[done] = column;
        search->done_at[done++] = here;
        if (search->owner[column] < 0) {
            end = here;
            break;
        }
        row = search->owner[column];
        search->rows_reached[reached] = row;
        search->reached[reached++] = here;
        if (here - search->rent[row] < nearest) {
            nearest = here - search->rent[row];
            quitter = row;
        }
        follow = search->seen[search->same[row]] != search->searches;
        search->seen[search->same[row]] = search->searches;
    }
    for (int each = 0; each < reached; each++)
        search->rent[search->rows_reached[each]] += end - search->reached[each];
    for (int each = 0; each < done; each++)
        search->price[search->columns_done[each]] -= end - search->done_at[each];
    shift(search, start, column, quitter);
    return 0;
}

static int add_row(Search *search, int row)
{
    const Edges *edges = search->edges;
    const Edge *edge = edges->edges + edges->first[search->list_of[row]], *last = edges->edges + edges->first[search->list_of[row] + 1];
    int nearest = -1;
    double rent = 0;
    search->steps += last - edge + 16;
    for (; edge < last; edge++) {
        double cost = -edge->weight - search->price[edge->at];
        if (cost < rent || (cost == rent && nearest >= 0 && search->owner[nearest] >= 0 && search->owner[edge->at] < 0)) {
            rent = cost;
            nearest = edge->at;
        }
    }
    search->rent[row] = rent;
    if (nearest < 0)
        return 0;
    if (search->owner[nearest] >= 0)
        return augment(search, row);
    search->column[row] = nearest;
    search->owner[nearest] = row;
    return 0;
}

/* The column of each row, or -1. Returns how many steps it took; -1 on failure. */
static long long assign(const Edges *edges, const int *list_of, const int *same, int rows, int columns, long long most, int *column_of)
{
    size_t all = (size_t)rows + (size_t)columns + 2;
    Search search = {.edges = edges, .list_of = list_of, .same = same, .column = column_of};
    double *numbers = calloc(5 * all, sizeof(double));
    int *places = calloc(7 * all, sizeof(int));
    int failed = numbers == NULL || places == NULL;
    if (!failed) {
        search.rent = numbers, search.price = numbers + all, search.best = numbers + 2 * all;
        search.reached = numbers + 3 * all, search.done_at = numbers + 4 * all;
        search.owner = places, search.parent = places + all, search.rows_reached = places + 2 * all;
        search.columns_done = places + 3 * all, search.met = places + 4 * all;
        search.closed = places + 5 * all, search.seen = places + 6 * all;
        memset(search.owner, 0xFF, (size_t)columns * sizeof(int));
        memset(column_of, 0xFF, (size_t)rows * sizeof(int));
    }
    for (int row = 0; !failed && row < rows && search.steps <= most; row++)
        failed = add_row(&search, row) < 0;
    free(numbers);
    free(places);
    free(search.queue);
    return failed ? -1 : search.steps;
}
