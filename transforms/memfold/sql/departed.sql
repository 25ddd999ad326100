-- departed: one row per memory that is expired or blank and so matches nothing; reads snapshot, texts, rejected, policy.
with

facts as (
    select
        s.memory_id,
        s.scope,
        case when s.expires_at <= p.as_of then 'expired' else 'blank' end as what,
        case when s.pinned then 'pinned' when s.protected then 'protected' end as fixed,
        r.memory_id is not null as is_taken_back
    from snapshot as s
    join texts as t on t.memory_id = s.memory_id
    cross join policy as p
    left join (select distinct memory_id, row_digest from rejected where into_id is null) as r
        on r.memory_id = s.memory_id and r.row_digest = s.row_digest
    where
        s.expires_at <= p.as_of
        or (t.is_blank and regexp_full_match(coalesce(s.title, ''), '[\s\p{Z}\p{C}]*'))
)

select
    f.memory_id,
    f.scope,
    case
        when f.fixed is not null then 'keep'
        when f.what = 'blank' and f.is_taken_back then 'keep'
        else 'prune'
    end as action,
    case
        when f.fixed is not null then 'kept'
        when f.what = 'blank' and f.is_taken_back then 'held'
        else f.what
    end as reason,
    case
        when f.fixed is not null then f.what || ', but ' || f.fixed
        when f.what = 'blank' and f.is_taken_back then 'blank, but a person took its removal back'
        else ''
    end as detail
from facts as f
order by f.memory_id
