-- promotions: one row per standing memory that qualifies for the next tier, and what becomes of it; reads survivors, snapshot, texts, clusters, rejected, policy.
-- A text that already stands in the next tier is merged into its twin there; where it may not, the memory waits in its tier.
with

movers as materialized (
    select
        v.memory_id,
        v.scope,
        t.text_key,
        s.kind,
        s.trust,
        coalesce(s.title, '') as title,
        s.valid_from,
        s.valid_to,
        case when p.session_recall = 'equality' and not p.across_sessions then s.session_id end as wall_session,
        case when t.says_day then cast(coalesce(s.event_time, s.created_at) at time zone 'UTC' as date) end as said_on,
        t.says_day,
        case when s.pinned then 'pinned' when s.protected then 'protected' end as fixed,
        v.is_taken_back
    from survivors as v
    join snapshot as s on s.memory_id = v.memory_id
    join texts as t on t.memory_id = v.memory_id
    cross join policy as p
    where v.is_promotable and not v.is_stale
),

-- each text of the next tier once per memory that stands for it there, however often it was copied.
-- Materialized, so that it meets the movers in one join on scope and text together.
standing_texts as materialized (
    select
        s.memory_id as twin_id,
        v.memory_id as into_id,
        s.scope,
        t.text_key,
        s.kind,
        s.trust,
        coalesce(s.title, '') as title,
        s.valid_from,
        s.valid_to,
        case when p.session_recall = 'equality' and not p.across_sessions then s.session_id end as wall_session,
        case when t.says_day then cast(coalesce(s.event_time, s.created_at) at time zone 'UTC' as date) end as said_on,
        case when v.memory_id <> s.memory_id then c.match else 'copy' end as match,
        coalesce(c.jaccard, 1) as jaccard,
        case when v.memory_id <> s.memory_id then c.added_words else 0 end as added_words,
        v.is_stale
    from snapshot as s
    join texts as t on t.memory_id = s.memory_id
    cross join policy as p
    left join clusters as c on c.memory_id = s.memory_id
    join survivors as v on v.memory_id = coalesce(c.survivor_id, s.memory_id)
    where
        s.tier = p.promote_to
        and exists (from movers as m where m.text_key = t.text_key)
        and (not v.is_stale or v.has_taken_back)
    qualify
        row_number() over (
            partition by
                into_id, s.scope, t.text_key, s.kind, s.trust, title, s.valid_from, s.valid_to, wall_session, said_on
            order by s.memory_id <> v.memory_id, s.memory_id
        ) = 1
),

twins as materialized (
    select
        m.memory_id,
        x.twin_id,
        x.into_id,
        x.match,
        x.jaccard,
        x.added_words,
        x.title = m.title as titles_agree,
        x.is_stale
    from movers as m
    join standing_texts as x
        on
            x.scope = m.scope
            and x.text_key = m.text_key
            and x.kind is not distinct from m.kind
            and x.trust is not distinct from m.trust
            and x.valid_from is not distinct from m.valid_from
            and x.valid_to is not distinct from m.valid_to
            and x.wall_session is not distinct from m.wall_session
            and x.said_on is not distinct from m.said_on
    where not m.says_day or m.said_on is not null
),

-- merges that a person took back: of the mover, or of a row that would go along with it
taken_back as (
    select distinct w.memory_id, w.into_id
    from (
        select t.memory_id, t.into_id, t.twin_id, c.memory_id as along_id
        from twins as t
        join clusters as c on c.survivor_id = t.memory_id
        union
        select t.memory_id, t.into_id, t.twin_id, t.memory_id from twins as t
    ) as w
    join rejected as r on r.memory_id = w.along_id and (r.into_id = w.into_id or r.into_id = w.twin_id)
    join snapshot as a on a.memory_id = r.memory_id and a.row_digest = r.row_digest
    join snapshot as b on b.memory_id = r.into_id and b.row_digest = r.into_digest
),

choices as (
    select
        t.memory_id,
        t.into_id,
        t.match,
        t.jaccard,
        t.added_words,
        case
            when b.memory_id is not null then 'a person keeps them apart'
            when not t.titles_agree then 'their titles differ'
            when t.is_stale then 'only a person keeps it there'
        end as obstacle
    from twins as t
    left join taken_back as b on b.memory_id = t.memory_id and b.into_id = t.into_id
    qualify
        row_number() over (
            partition by t.memory_id order by obstacle is not null, t.twin_id <> t.into_id, t.into_id, t.twin_id
        ) = 1
),

-- all that would end in one memory of the next tier, by the mover that brings it there; null: it is there already
gathered as (
    select c.into_id, c.memory_id as mover_id, c.memory_id from choices as c where c.obstacle is null
    union
    select c.into_id, c.memory_id, k.memory_id
    from choices as c
    join clusters as k on k.survivor_id = c.memory_id
    where c.obstacle is null
    union
    select c.into_id, null, c.into_id from choices as c where c.obstacle is null
    union
    select c.into_id, null, k.memory_id
    from choices as c
    join clusters as k on k.survivor_id = c.into_id
    where c.obstacle is null
),

-- movers that a person keeps apart from something that would end in the same memory
kept_apart as (
    select x.mover_id as memory_id, y.mover_id as other_id
    from rejected as r
    join snapshot as a on a.memory_id = r.memory_id and a.row_digest = r.row_digest
    join snapshot as b on b.memory_id = r.into_id and b.row_digest = r.into_digest
    join gathered as x on x.memory_id = r.memory_id
    join gathered as y on y.memory_id = r.into_id and y.into_id = x.into_id
    where y.mover_id is distinct from x.mover_id
),

-- what a twin would be with all that folds into it: it must not turn stale by that
filled as (
    select
        x.into_id,
        sum(v.use_count) as use_count,
        max(v.importance) as importance,
        min(v.created_at) as created_at,
        max(v.last_used_at) as last_used_at
    from (
        select c.into_id, c.memory_id from choices as c where c.obstacle is null
        union
        select c.into_id, c.into_id from choices as c where c.obstacle is null
    ) as x
    join survivors as v on v.memory_id = x.memory_id
    group by x.into_id
),

turning_stale as (
    select f.into_id
    from filled as f
    join snapshot as s on s.memory_id = f.into_id
    cross join policy as p
    where
        not (s.pinned or s.protected)
        and coalesce(
            p.stale_min_age_days, p.stale_min_idle_days, p.stale_max_use_count, p.stale_max_importance
        ) is not null
        and (len(p.stale_kinds) = 0 or list_contains(p.stale_kinds, s.kind))
        and (
            p.stale_min_age_days is null
            or epoch_us(p.as_of) - epoch_us(f.created_at) >= p.stale_min_age_days * 86400000000
        )
        and (
            p.stale_min_idle_days is null
            or epoch_us(p.as_of) - epoch_us(f.last_used_at) >= p.stale_min_idle_days * 86400000000
        )
        and (p.stale_max_use_count is null or f.use_count <= p.stale_max_use_count)
        and (p.stale_max_importance is null or f.importance <= p.stale_max_importance)
),

judged as (
    select
        m.memory_id,
        m.scope,
        c.into_id,
        c.match,
        c.jaccard,
        c.added_words,
        case
            when m.is_taken_back then 'qualifies for ' || p.promote_to || ', but a person wants it to stay in its tier'
            when m.fixed is not null then 'qualifies for ' || p.promote_to || ', but is ' || m.fixed
            when c.obstacle is not null
                then 'already stands in ' || p.promote_to || ' as ' || c.into_id || ', but ' || c.obstacle
            when exists (from kept_apart as k where m.memory_id in (k.memory_id, k.other_id))
                then 'already stands in ' || p.promote_to || ' as ' || c.into_id
                    || ', but a person keeps it apart from a copy that goes there'
            when g.into_id is not null
                then 'already stands in ' || p.promote_to || ' as ' || c.into_id || ', but would make it stale'
        end as obstacle,
        m.fixed is not null and not m.is_taken_back as is_fixed,
        p.promote_to
    from movers as m
    cross join policy as p
    left join choices as c on c.memory_id = m.memory_id
    left join turning_stale as g on g.into_id = c.into_id
)

select
    j.memory_id,
    j.scope,
    case when j.obstacle is not null then 'keep' when j.into_id is not null then 'merge' else 'promote' end as action,
    case when j.obstacle is null then j.into_id end as into_id,
    case
        when j.obstacle is not null and j.is_fixed then 'kept'
        when j.obstacle is not null then 'held'
        else coalesce(j.match, 'promoted')
    end as reason,
    case
        when j.obstacle is not null then j.obstacle
        when j.into_id is not null then 'already stands in ' || j.promote_to
        else 'qualifies for ' || j.promote_to
    end as detail,
    coalesce(j.jaccard, 0) as jaccard,
    coalesce(j.added_words, 0) as added_words
from judged as j
order by j.memory_id
