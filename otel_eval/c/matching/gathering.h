/* What belongs to each name or kind.
 *
 * Knows numbers; knows not what they stand for.
 */

typedef struct {
    int *first, *all; /* by name where its own begin in `all` */
} ByName;

/* What each name has, in order; `code` tells the name of each, -1 for none, through `kind` if there is one. */
static void gather(ByName *by_name, const int *code, const int *kind, int count, int names)
{
    int *first = by_name->first; /* of the next name at first, for each step below moves one back */
    for (int at = 0; at < count; at++) {
        int name = code[kind == NULL ? at : kind[at]];
        if (name >= 0)
            first[name]++;
    }
    for (int name = 1; name <= names; name++)
        first[name] += first[name - 1];
    for (int at = count - 1; at >= 0; at--) {
        int name = code[kind == NULL ? at : kind[at]];
        if (name >= 0)
            by_name->all[--first[name]] = at;
    }
}
