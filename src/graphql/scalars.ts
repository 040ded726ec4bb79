/** The scalars that GraphQL does not bring along. Both appear in answers only. */
import { GraphQLError, GraphQLScalarType } from 'graphql'

export const DateTime = new GraphQLScalarType<Date, string>({
  name: 'DateTime',
  serialize(value) {
    if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString()
    throw new GraphQLError('DateTime stands for a valid Date')
  },
})

export const Cents = new GraphQLScalarType<number, number>({
  name: 'Cents',
  serialize(value) {
    if (typeof value === 'number' && Number.isSafeInteger(value)) return value
    throw new GraphQLError('Cents stands for a whole number up to 2^53 - 1')
  },
})
